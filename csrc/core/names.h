// Options that are given by name.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace evenstride {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

// Returns the value of this name. Throws std::invalid_argument, with the name of the option and all
// the names that it can have, if there is none.
template <class Value, std::size_t size>
[[nodiscard]] Value parse_name(std::string_view option, const Named<Value> (&names)[size],
                               std::string_view given) {
  std::string accepted;
  for (const Named<Value>& named : names) {
    if (named.name == given) {
      return named.value;
    }
    accepted += (accepted.empty() ? "'" : ", '") + std::string(named.name) + "'";
  }
  throw std::invalid_argument("`" + std::string(option) + "` must be one of " + accepted +
                              ", but is '" + std::string(given) + "'.");
}

}  // namespace evenstride
