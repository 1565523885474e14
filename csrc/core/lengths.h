// The lengths of all samples, read in whatever integer type and memory they already have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

namespace evenstride {

// A view of one length a sample. Nothing is copied; the memory must outlive the view.
using Lengths = std::variant<std::span<const std::uint8_t>, std::span<const std::uint16_t>,
                             std::span<const std::uint32_t>, std::span<const std::uint64_t>,
                             std::span<const std::int8_t>, std::span<const std::int16_t>,
                             std::span<const std::int32_t>, std::span<const std::int64_t>>;

// Returns the number of samples.
[[nodiscard]] inline std::size_t num_samples(const Lengths& lengths) {
  return std::visit([](const auto& values) { return values.size(); }, lengths);
}

}  // namespace evenstride
