// The body of the kernel: pure functions of a batch, a tile, a lane and the number of lanes, which
// a host can run too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collate/pad.h"
#include "cuda/pad_batch.h"

namespace evenstride {

inline constexpr std::uint32_t kTileValues = 512;
inline constexpr std::uint32_t kStoreBytes = 16;

// Returns the tiles of a row of so many values, at least 1.
constexpr std::uint32_t num_tiles(std::uint32_t width) {
  return width == 0 ? 1 : (width - 1) / kTileValues + 1;
}

// What lies in a slab, where every row is aligned to its values.
template <class Wire>
struct StagedValuesOf {
  using Value = Wire;
  EVENSTRIDE_HOST_DEVICE static Wire at(const std::byte* values, std::uint32_t i) {
    return reinterpret_cast<const Wire*>(values)[i];
  }
};

// The values of one store, which is as wide as a device can make it.
template <class Out>
struct alignas(kStoreBytes) Stored {
  static constexpr std::uint32_t kValues = kStoreBytes / sizeof(Out);
  Out values[kValues];
};

// Values i, i + 1, ... of a row, as many as one store takes, read one by one.
template <class Source, class Out, bool kIsAligned>
struct Loaded {
  EVENSTRIDE_HOST_DEVICE static void read(const std::byte* values, std::uint32_t i,
                                          Stored<Out>& into) {
    for (std::uint32_t k = 0; k < Stored<Out>::kValues; ++k) {
      into.values[k] = static_cast<Out>(Source::at(values, i + k));
    }
  }
};

// The same in as few loads as possible, where the first of them is aligned to them all.
template <class Wire, class Out>
struct Loaded<StagedValuesOf<Wire>, Out, true> {
  static constexpr std::uint32_t kValues = Stored<Out>::kValues;
  static constexpr std::uint32_t kBytes = kValues * sizeof(Wire);
  static constexpr std::uint32_t kAlignment = kBytes < 16 ? kBytes : 16;
  struct alignas(kAlignment) Piece {
    Wire values[kAlignment / sizeof(Wire)];
  };

  EVENSTRIDE_HOST_DEVICE static void read(const std::byte* values, std::uint32_t i,
                                          Stored<Out>& into) {
    constexpr std::uint32_t kInPiece = kAlignment / sizeof(Wire);
    const auto* const pieces =
        reinterpret_cast<const Piece*>(reinterpret_cast<const Wire*>(values) + i);
    for (std::uint32_t p = 0; p < kValues / kInPiece; ++p) {
      const Piece piece = pieces[p];
      for (std::uint32_t k = 0; k < kInPiece; ++k) {
        into.values[p * kInPiece + k] = static_cast<Out>(piece.values[k]);
      }
    }
  }
};

// Writes `lane`'s part of places [begin, end) of a row, kStoreBytes at a time. Preconditions: begin
// stands at a multiple of kStoreBytes in memory, and so does end.
template <class Source, class Out, std::uint32_t kLanes, class Store, bool kIsAligned>
EVENSTRIDE_HOST_DEVICE void pad_stores(const PadRow& row, std::uint32_t begin, std::uint32_t end,
                                       std::uint32_t lane) {
  constexpr std::uint32_t kValues = Stored<Out>::kValues;
  const std::uint32_t first = row.pads_left ? row.width - row.length : 0;
  const std::uint32_t kept = first + row.prompt;
  const std::uint32_t last = first + row.length;
  const auto padding = static_cast<Out>(row.padding);
  auto* const out = reinterpret_cast<Out*>(row.out);
  std::uint32_t place = begin + lane * kValues;
  if (begin >= kept &&
      end <= last) {  // Without a branch, so that many loads are under way at once.
    for (; place < end; place += kLanes * kValues) {
      Stored<Out> stored;
      Loaded<Source, Out, kIsAligned>::read(row.values, place - first, stored);
      Store::put(reinterpret_cast<Stored<Out>*>(out + place), stored);
    }
    return;
  }
  EVENSTRIDE_FEW_ROUNDS
  for (; place < end; place += kLanes * kValues) {
    Stored<Out> stored;
    for (std::uint32_t k = 0; k < kValues; ++k) {
      const std::uint32_t at = place + k;
      const bool is_kept = at >= kept && at < last;
      stored.values[k] = is_kept ? static_cast<Out>(Source::at(row.values, at - first)) : padding;
    }
    Store::put(reinterpret_cast<Stored<Out>*>(out + place), stored);
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
  if (head == 0) {
    pad_stores<Source, Out, kLanes, Store, true>(row, stores_begin, stores_end, lane);
  } else {
    pad_stores<Source, Out, kLanes, Store, false>(row, stores_begin, stores_end, lane);
  }
  EVENSTRIDE_FEW_ROUNDS
  for (int part = 0; part < 2; ++part) {
    pad<Source, Out, kLanes, Store>(row, part == 0 ? begin : stores_end,
                                    part == 0 ? stores_begin : end, lane);
  }
}

template <std::uint32_t kLanes, class Store>
struct TileOfRow {
  template <class Source, class Out>
  EVENSTRIDE_HOST_DEVICE void operator()() const {
#ifdef __CUDA_ARCH__
    __builtin_assume(__isGlobal(row.out));
    __builtin_assume(__isGlobal(row.values));
#endif
    pad_tile_of_row<Source, Out, kLanes, Store>(row, tile, lane);
  }

  const PadRow& row;
  std::uint32_t tile;
  std::uint32_t lane;
};

// Returns sample number `row` as a field sees it.
EVENSTRIDE_HOST_DEVICE PadRow row_of(const PadBatch& batch, const PadGroup& group,
                                     const PadField& field, std::uint32_t row) {
  const auto at = [&batch](std::uint32_t place) {
    return batch.slab + std::uint64_t{place} * kStagingAlignment;
  };
  const StagedRow& staged = reinterpret_cast<const StagedRow*>(at(group.rows))[row];
  PadRow padded{};
  padded.out = batch.out + field.out + std::uint64_t{row} * field.width * field.pad.out_bytes;
  padded.width = field.width;
  padded.padding = field.padding;
  padded.pads_left = field.pads_left;
  if (field.rows == PadField::Rows::kLengths) {
    padded.values = reinterpret_cast<const std::byte*>(&staged.length);
    padded.length = 1;
    return padded;
  }
  padded.length = staged.length * field.cell_values;
  const std::uint32_t before = padded.pads_left ? padded.width - padded.length : 0;
  padded.values = at(staged.place) + before * field.pad.wire_bytes % kStagingAlignment;
  if (field.prompts != PadField::kNoPrompt) {
    const auto* const prompts = reinterpret_cast<const std::uint32_t*>(at(field.prompts));
    padded.prompt = prompts[row] * field.cell_values;
  }
  return padded;
}

// Writes `lane`'s part of a tile of a row in every output of a group.
template <std::uint32_t kLanes, class Store = PlainStore>
EVENSTRIDE_HOST_DEVICE void pad_tile(const PadBatch& batch, const PadGroup& group,
                                     std::uint32_t row, std::uint32_t tile, std::uint32_t lane) {
  for (std::uint32_t f = group.first_field; f < group.end_field; ++f) {
    const PadField& field = batch.fields[f];
    const PadRow padded = row_of(batch, group, field, row);
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
