// Composition: which samples come together in a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "core/buckets.h"
#include "core/cells.h"
#include "core/entries.h"
#include "core/fill.h"
#include "core/lengths.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/threads.h"

namespace evenstride {

enum class Composition : std::uint8_t {
  kShuffle,  // A uniform permutation of each bucket.
  kWindow,  // The same, then runs of `window` samples sorted by length, every second one downwards.
  kFrozen,  // By length, upwards, then by index.
  kSorted,  // By length, downwards, then by index.
};

// Returns the composition of this name: 'shuffle', 'window' or 'frozen'. Throws
// std::invalid_argument if it is none of them.
[[nodiscard]] Composition parse_composition(std::string_view name);

struct ComposeOptions {
  Composition composition = Composition::kShuffle;
  std::uint64_t window = 1024;  // At least 1.
  FillLimits limits;
};

// A batch: where its samples' indices stand, how many there are, and the longest sample.
template <class Entry>
struct Batch {
  using Index = typename Entry::Index;

  const std::byte* indices;  // `count` of Index, not aligned.
  Index count;
  Index longest;

  [[nodiscard]] Index index(std::size_t i) const noexcept {
    Index value;
    std::memcpy(&value, indices + i * sizeof(Index), sizeof(Index));
    return value;
  }
};

// The batches of a bucket, with the memory of those indices that stand nowhere else.
template <class Entry>
struct FilledBucket {
  using Index = typename Entry::Index;

  LargeVector<Batch<Entry>> batches;  // In fill order.
  LargeVector<Batch<Entry>> alone;    // One sample each, that fit no batch with others.
  std::vector<std::vector<Index>> arenas;
  std::uint64_t samples = 0;  // In `batches`.

  // Appends the batches that `cuts` makes of `entries`, with an arena of their own.
  void append(std::span<const Entry> entries, std::span<const Cut> cuts);
};

inline constexpr std::uint64_t kFillWork = 40;  // Of a sample, for a watch.

// Composes and fills all buckets; the last one also gets the samples that are alone. The batches
// refer to `workspace`, until it is used again.
//
// A bucket's batches depend on (lengths, classes, options, stream) alone. Each cell of a bucket is
// filled by itself; what is open at the ends of the cells is pooled, in order, and filled last.
template <class Entry>
[[nodiscard]] std::vector<FilledBucket<Entry>> compose(const Lengths& lengths,
                                                       const Classes& classes, const Survey& survey,
                                                       const ComposeOptions& options, Stream stream,
                                                       Workspace& workspace, Team& team);

// Puts `entries`, which are in random order, into the order in which the composition fills them.
// Returns how many of them are settled: the rest, an incomplete run, waits for more.
template <class Entry>
std::size_t arrange(std::span<Entry> entries, std::span<Entry> scratch,
                    const ComposeOptions& options, const Watch& watch = kUnwatched);

}  // namespace evenstride
