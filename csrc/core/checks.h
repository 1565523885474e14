// Checks of options that every entry to the core makes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/fill.h"

namespace evenstride {

// Throws std::invalid_argument, with the name and the value, unless value is in [1, 2^63).
inline void check_count(const char* name, std::uint64_t value) {
  if (value == 0 || value >= std::uint64_t{1} << 63) {
    throw std::invalid_argument("`" + std::string(name) + "` must be in [1, 2**63), but is " +
                                std::to_string(value) + ".");
  }
}

// Throws std::invalid_argument unless every limit is in [1, 2^63); max_batch_size may be
// kUnlimited.
inline void check_limits(const FillLimits& limits) {
  check_count("token_budget", limits.token_budget);
  if (limits.max_batch_size != kUnlimited) {
    check_count("max_batch_size", limits.max_batch_size);
  }
  check_count("batch_size_multiple", limits.batch_size_multiple);
  check_count("pad_to_multiple_of", limits.pad_to_multiple_of);
}

}  // namespace evenstride
