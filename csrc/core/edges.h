// The edges of the buckets that make the fill cost least: padded tokens, and few batches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/fill.h"
#include "core/histogram.h"
#include "core/threads.h"

namespace evenstride {

// Returns the inner edges of at most `num_buckets` buckets: strictly increasing lengths in
// [2, longest], each the shortest length of the next bucket, as numpy.digitize reads them. Every
// bucket holds a sample, and samples of equal width are in one bucket.
//
// They minimise the padded tokens of the real fill and a small overhead for each batch, as
// core/edges_cost.h estimates them, over all choices from the cuts of core/edges_candidates.h;
// among equals, the fewest buckets. Each bucket's last batch counts as if full, so that there are
// fewer buckets than asked where one more would not pay; but as it is where all samples are at most
// BucketCosts::kFewSamples, and where a bucket's batches have one sample each.
//
// The histogram should hold admitted samples only; one that is wider than the budget counts as a
// batch of its own. The result is the same on every platform and for every size of the team.
//
// Throws std::invalid_argument if num_buckets < 1, the histogram is empty, or a limit is out of
// range. With G cuts, G = max(160, 5 * num_buckets) but at most 2,048, it takes G^2 / 2 simulated
// fills, shared by the team, O(num_buckets * G^2) additions and O(distinct lengths) for the rest.
[[nodiscard]] std::vector<std::uint64_t> optimal_edges(const LengthHistogram& histogram,
                                                       std::uint64_t num_buckets,
                                                       const FillLimits& limits, Team& team);

}  // namespace evenstride
