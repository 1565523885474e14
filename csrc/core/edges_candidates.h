// Where an edge may lie: few enough cuts that every pair of them can be tried.
#pragma once

#include <cstddef>
#include <vector>

#include "core/edges_cost.h"

namespace evenstride {

// Returns cuts, strictly increasing from 0 to the number of widths; cut c separates the widths
// below index c from the others.
//
// With at most `num_cuts` widths these are all cuts. Otherwise half of them are quantiles by
// samples and half by padded tokens, with both sides of every width that is heavy enough to be a
// quantile by itself, however many quantiles lie in it: about num_cuts, and at most twice as many.
//
// Preconditions: `histogram` has a sample; num_cuts >= 4. O(distinct widths).
[[nodiscard]] std::vector<std::size_t> candidate_cuts(const WidthHistogram& histogram,
                                                      std::size_t num_cuts);

}  // namespace evenstride
