// How many samples have each length: all that is known of the lengths when edges are chosen.
#pragma once

#include <cstdint>
#include <vector>

#include "core/lengths.h"
#include "core/threads.h"

namespace evenstride {

// The distinct lengths, ascending, and for each its number of samples, at least 1.
struct LengthHistogram {
  std::vector<std::uint64_t> lengths;
  std::vector<std::uint64_t> counts;

  friend bool operator==(const LengthHistogram&, const LengthHistogram&) = default;
};

// Returns the number of samples counted. O(distinct lengths).
[[nodiscard]] std::uint64_t num_samples(const LengthHistogram& histogram);

inline constexpr std::uint64_t kHistogramWork = 12;  // Of a sample, for a watch.

// Returns the histogram of `lengths`; no samples give no lengths.
//
// Throws std::invalid_argument, naming the first such sample, if a length is outside [0, 2^63).
// Takes O(samples) time for lengths that are below 2^22 and below the number of samples; longer
// ones may be sorted. Beyond the result it needs at most 1 MiB and 64 bytes a sample. The result is
// the same for every size of the team.
[[nodiscard]] LengthHistogram length_histogram(const Lengths& lengths, Team& team);

}  // namespace evenstride
