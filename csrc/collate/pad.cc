#include "collate/pad.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "core/clones.h"

namespace evenstride {
namespace {

// Calls use(T{}) with the integer that represents an integer type or bool.
template <class Use>
auto with_integer(DType dtype, Use use) {
  const auto with_sign = [&](auto bits) {
    using Unsigned = decltype(bits);
    return is_signed(dtype) ? use(std::make_signed_t<Unsigned>{}) : use(Unsigned{});
  };
  switch (size_of(dtype)) {
    case 1:
      return with_sign(std::uint8_t{});
    case 2:
      return with_sign(std::uint16_t{});
    case 4:
      return with_sign(std::uint32_t{});
    default:
      return with_sign(std::uint64_t{});
  }
}

// Returns the T that is nearest to `value`.
template <class T, class Value>
constexpr T clamped(Value value) {
  using Limits = std::numeric_limits<T>;
  if (std::cmp_less(value, Limits::min())) {
    return Limits::min();
  }
  return std::cmp_greater(value, Limits::max()) ? Limits::max() : static_cast<T>(value);
}

template <class T>
std::uint64_t first_outside(const std::byte* values, std::uint64_t length, T least, T most) {
  using Bits = std::make_unsigned_t<T>;
  const auto bits_from_least = [&](T value) {
    return static_cast<Bits>(static_cast<Bits>(value) - static_cast<Bits>(least));
  };
  const Bits span = bits_from_least(most);
  // 1 or 0, as wide as a value, which is what compilers have vectors of.
  const auto is_outside = [&](std::uint64_t place) {
    const Bits above = bits_from_least(load<T>(values + place * sizeof(T)));
    return static_cast<Bits>(above > span ? 1 : 0);
  };
  // Whole blocks first, without a branch a value; most have no misfit.
  constexpr std::uint64_t kBlock = 256;
  for (std::uint64_t begin = 0; begin < length; begin += kBlock) {
    const std::uint64_t end = length - begin < kBlock ? length : begin + kBlock;
    Bits any_outside = 0;
    for (std::uint64_t place = begin; place < end; ++place) {
      any_outside |= is_outside(place);
    }
    for (std::uint64_t place = begin; any_outside != 0 && place < end; ++place) {
      if (is_outside(place) != 0) {
        return place;
      }
    }
  }
  return length;
}

}  // namespace

Pad pad_values_of(DType from, DType to) {
  const bool extends_sign = is_signed(from) && size_of(from) < size_of(to);
  return {.source = extends_sign ? Pad::Source::kSignedValues : Pad::Source::kValues,
          .wire_bytes = static_cast<std::uint8_t>(size_of(from)),
          .out_bytes = static_cast<std::uint8_t>(size_of(to))};
}

Pad pad_mask_of(DType to) {
  const auto bytes = static_cast<std::uint8_t>(size_of(to));
  return {.source = Pad::Source::kMask, .wire_bytes = bytes, .out_bytes = bytes};
}

Pad pad_positions_of(DType to) {
  const auto bytes = static_cast<std::uint8_t>(size_of(to));
  return {.source = Pad::Source::kPositions, .wire_bytes = bytes, .out_bytes = bytes};
}

// Flattened, for only what is inlined is compiled for the instruction set of a clone.
[[gnu::flatten]] EVENSTRIDE_CLONES void pad_row(Pad how, const PadRow& row) {
  with_types<ValuesOf>(how, [&]<class Source, class Out> { pad<Source, Out>(row); });
}

[[gnu::flatten]] EVENSTRIDE_CLONES std::uint64_t first_misfit(const std::byte* values,
                                                              std::uint64_t length, DType from,
                                                              DType to) {
  return with_integer(from, [&](auto wire) {
    using From = decltype(wire);
    const From least = with_integer(
        to, [](auto out) { return clamped<From>(std::numeric_limits<decltype(out)>::min()); });
    const From most = with_integer(to, [&](auto out) {
      using To = decltype(out);
      const bool is_bool = from == DType::kBool || to == DType::kBool;
      return clamped<From>(is_bool ? To{1} : std::numeric_limits<To>::max());
    });
    return first_outside(values, length, least, most);
  });
}

std::string integer_at(const std::byte* values, std::uint64_t place, DType dtype) {
  return with_integer(dtype, [&](auto wire) {
    return std::to_string(load<decltype(wire)>(values + place * sizeof(wire)));
  });
}

}  // namespace evenstride
