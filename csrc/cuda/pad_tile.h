// The body of the kernel: pure functions of a batch, a tile, a lane and the number of lanes, which
// a host can run too.
//
// A tile is what a warp writes of one row before it goes on: kTileValues places. Its stores are
// kStoreBytes wide, and the lanes' stores lie side by side, for a device writes whole lines at the
// rate of its memory. All places that one store takes are decided together: staged values lie where
// their places do, modulo the widest load, so that a few loads bring them, and what they bring of
// other places is replaced by padding. There is one path for tiles of values, of padding and of
// both: it has no branch that lanes could take differently, and costs a few instructions a store
// while thousands of cycles pass in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collate/pad.h"
#include "cuda/pad_batch.h"

// Before a loop that takes a device a few rounds, and is not worth the code of many at once.
#ifdef __CUDA_ARCH__
#define EVENSTRIDE_FEW_ROUNDS _Pragma("unroll 1")
#else
#define EVENSTRIDE_FEW_ROUNDS
#endif

namespace evenstride {

inline constexpr std::uint32_t kTileValues = 512;
inline constexpr std::uint32_t kStoreBytes = 16;

// Returns the tiles of a row of so many values, at least 1.
constexpr std::uint32_t num_tiles(std::uint32_t width) {
  return width == 0 ? 1 : (width - 1) / kTileValues + 1;
}

// How a value reaches memory. Tests count the stores.
struct PlainStore {
  template <class T>
  EVENSTRIDE_HOST_DEVICE static void put(T* address, const T& value) {
    *address = value;
  }
};

// What lies in a slab, where every value is aligned.
template <class Wire>
struct StagedValuesOf {
  EVENSTRIDE_HOST_DEVICE static Wire at(const std::byte* values, std::uint32_t i) {
    return reinterpret_cast<const Wire*>(values)[i];
  }
};

// The values of one store.
template <class Out>
struct alignas(kStoreBytes) Stored {
  static constexpr std::uint32_t kValues = kStoreBytes / sizeof(Out);
  Out values[kValues];
};

// The places [begin, end) of a row show its values, all others padding.
struct Shown {
  EVENSTRIDE_HOST_DEVICE explicit Shown(const PadRow& row)
      : first(row.pads_left ? row.width - row.length : 0),
        begin(first + row.prompt),
        end(first + row.length) {}

  [[nodiscard]] EVENSTRIDE_HOST_DEVICE bool has(std::uint32_t place) const {
    return place - begin < end - begin;  // Below `begin`, the difference is huge.
  }
  [[nodiscard]] EVENSTRIDE_HOST_DEVICE bool has_some(std::uint32_t place,
                                                     std::uint32_t count) const {
    return place < end && place + count > begin;
  }

  std::uint32_t first;  // The place of the row's first value, be it shown or not.
  std::uint32_t begin;
  std::uint32_t end;
};

// What the values of one store are made of. Of a source that computes them: nothing in memory.
template <class Source, class Out>
struct Inputs {
  static constexpr std::uint32_t kBytes = 0;

  // Loads what the places from `place` on need, as far as they are shown.
  EVENSTRIDE_HOST_DEVICE void fetch(const PadRow& /*row*/, const Shown& /*shown*/,
                                    std::uint32_t /*place*/) {}
  // Returns the value of place number k of the store, where the first is value i of the row.
  [[nodiscard]] EVENSTRIDE_HOST_DEVICE Out value(std::uint32_t k, std::uint32_t i) const {
    return static_cast<Out>(Source::at(nullptr, i + k));
  }
};

// Of values in a slab: those of all places of the store, in as few loads as possible. Loads without
// any value that is shown are left out; the others stay within the room of the row, which consists
// of kStagingAlignment bytes at a time. What was loaded stays whole until it is stored: values that
// are taken apart at once make each load wait for the one before.
template <class Wire, class Out>
struct Inputs<StagedValuesOf<Wire>, Out> {
  static constexpr std::uint32_t kValues = Stored<Out>::kValues;
  static constexpr std::uint32_t kBytes = kValues * sizeof(Wire);
  static constexpr std::uint32_t kLoadBytes =
      kBytes < kStagingAlignment ? kBytes : kStagingAlignment;
  static constexpr std::uint32_t kInLoad = kLoadBytes / sizeof(Wire);
  static constexpr std::ptrdiff_t kWireBytes = sizeof(Wire);
  using Word = std::conditional_t<kLoadBytes == 2, std::uint16_t, std::uint32_t>;
  struct alignas(kLoadBytes) Load {
    Word words[kLoadBytes / sizeof(Word)];
  };

  EVENSTRIDE_HOST_DEVICE void fetch(const PadRow& row, const Shown& shown, std::uint32_t place) {
    for (std::uint32_t p = 0; p < kValues / kInLoad; ++p) {
      const std::uint32_t at = place + p * kInLoad;
      if (shown.has_some(at, kInLoad)) {
        // Of places of which the first can lie before the row's first value.
        const std::ptrdiff_t i = static_cast<std::int32_t>(at - shown.first);
        loads[p] = *reinterpret_cast<const Load*>(row.values + i * kWireBytes);
      }
    }
  }
  // Memory is little-endian, as on every device.
  [[nodiscard]] EVENSTRIDE_HOST_DEVICE Out value(std::uint32_t k, std::uint32_t /*i*/) const {
    const auto& words = loads[k / kInLoad].words;
    const auto byte = static_cast<std::uint32_t>(k % kInLoad * sizeof(Wire));
    if constexpr (sizeof(Wire) > sizeof(Word)) {
      const std::uint32_t low = byte / sizeof(Word);
      return static_cast<Out>(std::uint64_t{words[low + 1]} << 32 | words[low]);
    } else {
      const std::uint32_t bits = words[byte / sizeof(Word)];
      return static_cast<Out>(static_cast<Wire>(bits >> (8 * (byte % sizeof(Word)))));
    }
  }

  Load loads[kValues / kInLoad] = {};
};

// Writes places [begin, end) of a row, `lane`'s part. Both stand at a multiple of kStoreBytes in
// memory.
template <class Source, class Out, std::uint32_t kLanes, class Store>
EVENSTRIDE_HOST_DEVICE void pad_stores(const PadRow& row, const Shown& shown, std::uint32_t begin,
                                       std::uint32_t end, std::uint32_t lane) {
  using StoreInputs = Inputs<Source, Out>;
  constexpr std::uint32_t kValues = Stored<Out>::kValues;
  constexpr std::uint32_t kStep = kLanes * kValues;
  // Several loads are under way at once, for memory is far away: as many as registers allow.
  constexpr std::uint32_t kRounds = kTileValues / kStep;
  constexpr std::uint32_t kMostAtOnce = StoreInputs::kBytes <= 16 ? 4 : 1;
  constexpr std::uint32_t kAtOnce = kRounds < kMostAtOnce ? kRounds : kMostAtOnce;
  auto* const out = reinterpret_cast<Out*>(row.out);
  Shown shown_here = shown;
  shown_here.end = shown.end < end ? shown.end : end;
  EVENSTRIDE_FEW_ROUNDS
  for (std::uint32_t place = begin + lane * kValues; place < end; place += kAtOnce * kStep) {
    StoreInputs inputs[kAtOnce];
    for (std::uint32_t r = 0; r < kAtOnce; ++r) {
      inputs[r].fetch(row, shown_here, place + r * kStep);
    }
    for (std::uint32_t r = 0; r < kAtOnce; ++r) {
      const std::uint32_t at = place + r * kStep;
      Stored<Out> stored;
      for (std::uint32_t k = 0; k < kValues; ++k) {
        stored.values[k] = shown.has(at + k) ? inputs[r].value(k, at - shown.first)
                                             : static_cast<Out>(row.padding);
      }
      if (at < end) {
        Store::put(reinterpret_cast<Stored<Out>*>(out + at), stored);
      }
    }
  }
}

// Writes `lane`'s part of tile number `tile` of a row: kTileValues places, of which the first tile
// has more and the last one fewer, so that all others begin and end where wide stores do.
template <class Source, class Out, std::uint32_t kLanes, class Store>
EVENSTRIDE_HOST_DEVICE void pad_tile_of_row(const PadRow& row, std::uint32_t tile,
                                            std::uint32_t lane) {
  constexpr std::uint32_t kValues = Stored<Out>::kValues;
  const auto address = reinterpret_cast<std::uintptr_t>(row.out);
  const std::uint32_t past = static_cast<std::uint32_t>(address / sizeof(Out)) % kValues;
  const std::uint32_t head = past == 0 ? 0 : kValues - past;
  const std::uint32_t begin = tile == 0 ? 0 : tile * kTileValues + head;
  const std::uint32_t full_end = (tile + 1) * kTileValues + head;
  const std::uint32_t end = full_end < row.width ? full_end : row.width;
  if (begin >= end) {
    return;
  }
  const std::uint32_t unaligned = tile == 0 ? head : 0;
  const std::uint32_t stores_begin = begin + unaligned < end ? begin + unaligned : end;
  const std::uint32_t stores_end = stores_begin + (end - stores_begin) / kValues * kValues;
  const Shown shown(row);
  pad_stores<Source, Out, kLanes, Store>(row, shown, stores_begin, stores_end, lane);
  // What is left on either side, one by one: of a warp, each lane has one place at most.
  const std::uint32_t before = stores_begin - begin;
  const std::uint32_t singles = before + (end - stores_end);
  EVENSTRIDE_FEW_ROUNDS
  for (std::uint32_t single = lane; single < singles; single += kLanes) {
    const std::uint32_t place = single < before ? begin + single : stores_end + (single - before);
    auto value = static_cast<Out>(row.padding);
    if (shown.has(place)) {
      value = static_cast<Out>(Source::at(row.values, place - shown.first));
    }
    Store::put(reinterpret_cast<Out*>(row.out) + place, value);
  }
}

template <std::uint32_t kLanes, class Store>
struct TileOfRow {
  template <class Source, class Out>
  EVENSTRIDE_HOST_DEVICE void operator()() const {
#ifdef __CUDA_ARCH__
    // Else loads and stores ask first what kind of memory it is.
    __builtin_assume(__isGlobal(row.out));
    __builtin_assume(__isGlobal(row.values));
#endif
    pad_tile_of_row<Source, Out, kLanes, Store>(row, tile, lane);
  }

  const PadRow& row;
  std::uint32_t tile;
  std::uint32_t lane;
};

EVENSTRIDE_HOST_DEVICE const std::byte* at_place(const PadBatch& batch, std::uint32_t place) {
  return batch.slab + std::uint64_t{place} * kStagingAlignment;
}

// Returns sample number `row`, which was staged so, as a field sees it.
EVENSTRIDE_HOST_DEVICE PadRow row_of(const PadBatch& batch, const StagedRow* staged,
                                     const PadField& field, std::uint32_t row) {
  PadRow padded{};
  padded.out = batch.out + field.out + std::uint64_t{row} * field.width * field.pad.out_bytes;
  padded.width = field.width;
  padded.padding = field.padding;
  padded.pads_left = field.pads_left;
  if (field.rows == PadField::Rows::kLengths) {
    padded.values = reinterpret_cast<const std::byte*>(&staged->length);
    padded.length = 1;
    return padded;
  }
  padded.length = staged->length * field.cell_values;
  const std::uint32_t before = padded.pads_left ? padded.width - padded.length : 0;
  padded.values =
      at_place(batch, staged->place) + staged_shift(row, field.width, before, field.pad.wire_bytes);
  if (field.prompts != PadField::kNoPrompt) {
    const auto* const prompts =
        reinterpret_cast<const std::uint32_t*>(at_place(batch, field.prompts));
    padded.prompt = prompts[row] * field.cell_values;
  }
  return padded;
}

// Writes `lane`'s part of a tile of a row in every output of a group.
template <std::uint32_t kLanes, class Store = PlainStore>
EVENSTRIDE_HOST_DEVICE void pad_tile(const PadBatch& batch, const PadGroup& group,
                                     std::uint32_t row, std::uint32_t tile, std::uint32_t lane) {
  const auto* const staged = reinterpret_cast<const StagedRow*>(at_place(batch, group.rows)) + row;
  for (std::uint32_t f = group.first_field; f < group.end_field; ++f) {
    const PadField& field = batch.fields[f];
    const PadRow padded = row_of(batch, staged, field, row);
    with_types<StagedValuesOf>(field.pad, TileOfRow<kLanes, Store>{padded, tile, lane});
  }
}

// The tiles of a group that fall to one of `num_walkers`, walked without a division each.
class TileWalk {
 public:
  EVENSTRIDE_HOST_DEVICE TileWalk(std::uint32_t walker, std::uint32_t num_walkers,
                                  std::uint32_t tiles)
      : row(walker / tiles),
        tile(walker % tiles),
        rows_step_(num_walkers / tiles),
        tiles_step_(num_walkers % tiles),
        tiles_(tiles) {}

  EVENSTRIDE_HOST_DEVICE void advance() {
    row += rows_step_;
    tile += tiles_step_;
    if (tile >= tiles_) {
      tile -= tiles_;
      ++row;
    }
  }

  std::uint32_t row;
  std::uint32_t tile;

 private:
  std::uint32_t rows_step_;
  std::uint32_t tiles_step_;
  std::uint32_t tiles_;
};

}  // namespace evenstride
