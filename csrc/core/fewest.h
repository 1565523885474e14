// The fewest batches that samples can make, in whatever order they are filled.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buckets.h"
#include "core/fill.h"
#include "core/histogram.h"

namespace evenstride {

// Returns the fewest batches of each bucket, when `batch_size_multiple` is left out of account.
// Samples that are in no bucket do not count. O(distinct lengths).
//
// Filling by rising length is the best there is: any part of a batch that fits fits too, so closing
// a batch later never hurts, and exchanging samples between batches until lengths rise never adds
// to the longest of any.
[[nodiscard]] std::vector<std::uint64_t> fewest_batches(const LengthHistogram& histogram,
                                                        const Classes& classes,
                                                        const FillLimits& limits);

}  // namespace evenstride
