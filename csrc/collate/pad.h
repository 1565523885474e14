// How rows are padded: plain functions of numbers and addresses, which a host and a device share,
// and the loop of a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "collate/dtype.h"

#ifdef __CUDACC__
#define EVENSTRIDE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define EVENSTRIDE_HOST_DEVICE inline
#endif

namespace evenstride {

// One row of an output: `length` values, with padding before or after them up to `width`, and in
// place of the prompt, the first of them. Places in a row have 32 bits, for which devices can keep
// their widest stores; rows themselves lie anywhere.
struct PadRow {
  const std::byte* values;  // At any alignment on a host.
  std::byte* out;           // Aligned to its values.
  std::uint32_t length;     // At most `width`.
  std::uint32_t width;      // Below 2^31.
  std::uint32_t prompt;     // At most `length`.
  std::uint64_t padding;    // In its low bytes.
  bool pads_left;
};

template <class T>
EVENSTRIDE_HOST_DEVICE T load(const std::byte* memory) {
  T value;
  std::memcpy(&value, memory, sizeof(T));
  return value;
}

// A source says what value i of a row is; this one, what lies in memory. Bits are moved, not
// numbers: Wire is an unsigned integer as wide as the values, or a signed one where their sign
// extends them.
template <class Wire>
struct ValuesOf {
  EVENSTRIDE_HOST_DEVICE static Wire at(const std::byte* values, std::uint32_t i) {
    return load<Wire>(values + std::size_t{i} * sizeof(Wire));
  }
};

// 1, 1, ...
struct MaskOf {
  EVENSTRIDE_HOST_DEVICE static std::uint8_t at(const std::byte* /*values*/, std::uint32_t /*i*/) {
    return 1;
  }
};

// 0, 1, 2, ...
struct PositionsOf {
  EVENSTRIDE_HOST_DEVICE static std::uint32_t at(const std::byte* /*values*/, std::uint32_t i) {
    return i;
  }
};

// Writes a row. Out is the unsigned integer as wide as the output.
template <class Source, class Out>
void pad(const PadRow& row) {
  const std::uint32_t first = row.pads_left ? row.width - row.length : 0;
  const auto padding = static_cast<Out>(row.padding);
  const std::byte* const values = row.values;
  auto* const out = reinterpret_cast<Out*>(row.out);
  const std::uint32_t head = first + row.prompt;
  for (std::uint32_t place = 0; place < head; ++place) {
    out[place] = padding;
  }
  // Counted from the first value: a sum that can wrap would keep compilers from wide loads.
  auto* const out_of_values = out + first;
  for (std::uint32_t i = row.prompt; i < row.length; ++i) {
    out_of_values[i] = static_cast<Out>(Source::at(values, i));
  }
  for (std::uint32_t place = first + row.length; place < row.width; ++place) {
    out[place] = padding;
  }
}

// How to pad rows of one kind, chosen once for each output.
struct Pad {
  enum class Source : std::uint8_t { kValues, kSignedValues, kMask, kPositions };

  Source source;
  std::uint8_t wire_bytes;  // Of a value; of no meaning to masks and positions.
  std::uint8_t out_bytes;
};

// Calls use.template operator()<Out>() with the unsigned integer of this size.
template <class Use>
EVENSTRIDE_HOST_DEVICE void with_unsigned(std::uint32_t bytes, const Use& use) {
  switch (bytes) {
    case 1:
      return use.template operator()<std::uint8_t>();
    case 2:
      return use.template operator()<std::uint16_t>();
    case 4:
      return use.template operator()<std::uint32_t>();
    default:
      return use.template operator()<std::uint64_t>();
  }
}

// Calls use.template operator()<Source, Out>() with the types that `how` stands for, where Values
// is the source of what lies in memory.
template <template <class> class Values, class Use>
struct WithOut {
  template <class Out>
  struct WithWire {
    template <class Wire>
    EVENSTRIDE_HOST_DEVICE void operator()() const {
      if constexpr (sizeof(Wire) < sizeof(Out)) {
        if (how.source == Pad::Source::kSignedValues) {
          return use.template operator()<Values<std::make_signed_t<Wire>>, Out>();
        }
      }
      use.template operator()<Values<Wire>, Out>();
    }

    Pad how;
    const Use& use;
  };

  template <class Out>
  EVENSTRIDE_HOST_DEVICE void operator()() const {
    if (how.source == Pad::Source::kMask) {
      return use.template operator()<MaskOf, Out>();
    }
    if (how.source == Pad::Source::kPositions) {
      return use.template operator()<PositionsOf, Out>();
    }
    with_unsigned(how.wire_bytes, WithWire<Out>{how, use});
  }

  Pad how;
  const Use& use;
};
template <template <class> class Values, class Use>
EVENSTRIDE_HOST_DEVICE void with_types(Pad how, const Use& use) {
  with_unsigned(how.out_bytes, WithOut<Values, Use>{how, use});
}

// Returns how to pad rows of `from` into rows of `to`. Precondition: is_convertible(from, to).
[[nodiscard]] Pad pad_values_of(DType from, DType to);

// Return how to write masks and positions of an integer type or bool.
[[nodiscard]] Pad pad_mask_of(DType to);
[[nodiscard]] Pad pad_positions_of(DType to);

// Writes one whole row.
void pad_row(Pad how, const PadRow& row);

// Returns the place of the first of `length` values, which lie at any alignment, that does not fit
// into `to`, or `length` if all fit. Precondition: neither type is a float.
[[nodiscard]] std::uint64_t first_misfit(const std::byte* values, std::uint64_t length, DType from,
                                         DType to);

// Returns the integer at this place as text, for errors.
[[nodiscard]] std::string integer_at(const std::byte* values, std::uint64_t place, DType dtype);

}  // namespace evenstride
