// Filling a bucket into exactly as many batches as are wanted.
#pragma once

#include <cstdint>

#include "core/compose.h"
#include "core/fill.h"
#include "core/lengths.h"
#include "core/watch.h"

namespace evenstride {

// Refills the end of `bucket`, so that it has exactly `wanted` batches besides those of samples
// that are alone. Every sample stays in one batch, and every batch within the limits.
//
// Too few batches: the last max(`tail`, 8 * missing) or so are filled again under budget and
// max_batch_size both scaled by one factor, the smallest that makes no more than is wanted, and the
// few still missing come from halving the batches with most samples. Too many: as few of the last
// batches as will do have their samples sorted by length before they are filled again. The refilled
// batches keep to `batch_size_multiple` where `wanted` can be met so.
//
// Precondition: `wanted` lies between the number of batches that the bucket makes sorted by length,
// without a multiple, and its number of samples. Takes O(refilled samples * log) time.
template <class Entry>
void complete(FilledBucket<Entry>& bucket, std::uint64_t wanted, std::uint64_t tail,
              const Lengths& lengths, const FillLimits& limits, const Watch& watch = kUnwatched);

// Cuts `entries`, in the order that they have, into exactly `wanted` batches of near-equal cost:
// under the smallest scaled limits that make no more than that, then by halving. Precondition: the
// limits allow at most `wanted` batches, and there are at least `wanted` entries.
template <class Entry>
[[nodiscard]] std::vector<Cut> cut_into(std::span<const Entry> entries, std::uint64_t wanted,
                                        const FillLimits& limits, const Watch& watch = kUnwatched);

// Returns how many batches `entries`, in the order that they have, make.
template <class Entry>
[[nodiscard]] std::uint64_t count_batches(std::span<const Entry> entries, const FillLimits& limits,
                                          const Watch& watch = kUnwatched);

}  // namespace evenstride
