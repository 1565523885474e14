// The types that values can have, in files and in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace evenstride {

enum class DType : std::uint8_t {
  kBool,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

// Returns the bytes of one value: 1, 2, 4 or 8.
[[nodiscard]] std::size_t size_of(DType dtype);

// Returns the name that numpy and torch use, such as "int64".
[[nodiscard]] std::string_view name_of(DType dtype);

// Returns the type of this name. Throws std::invalid_argument, naming `option`, if there is none.
[[nodiscard]] DType parse_dtype(std::string_view option, std::string_view name);

[[nodiscard]] constexpr bool is_float(DType dtype) {
  return dtype >= DType::kFloat16;
}

// Returns whether the type is an integer that can be negative.
[[nodiscard]] bool is_signed(DType dtype);

// Returns whether values of `from` can be written as `to`: integers and bools as any integers or
// bools, one by one if they fit; floats as the same floats only.
[[nodiscard]] bool is_convertible(DType from, DType to);

// Returns whether each value of `from` fits into `to`. Bools may not, even into bools: their bytes
// in memory can be others than 0 and 1. Precondition: is_convertible(from, to).
[[nodiscard]] bool always_fits(DType from, DType to);

}  // namespace evenstride
