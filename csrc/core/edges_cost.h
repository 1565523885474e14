// What a bucket costs: the padded tokens that the real fill would make of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fill.h"
#include "core/histogram.h"

namespace evenstride {

// The distinct widths, ascending, and the number of samples below each of them: one entry more, the
// last is the number of all samples. Samples of equal width belong together, for cutting between
// them saves nothing.
struct WidthHistogram {
  std::vector<std::uint64_t> widths;
  std::vector<std::uint64_t> samples_below;
};

// Returns the histogram of the samples' widths. O(distinct lengths).
[[nodiscard]] WidthHistogram width_histogram(const LengthHistogram& histogram,
                                             std::uint64_t pad_to_multiple_of);

// The costs of all buckets of one data set, in units that are fixed by the data set: sums of costs
// of disjoint buckets are below 2^63. Integers only, so that every platform finds the same edges.
//
// A bucket's samples are represented by `num_draws` of its quantiles, in one pseudo-random order
// that all buckets share, so that their differences are not noise. They are filled greedily to the
// real longest sample, round and round until the batch that holds the last draw is full; its padded
// tokens a sample, times the number of samples, is the cost of the bucket but for its last batch.
// That one is left half full on average and is counted as if full, so that a tiny bucket costs a
// whole batch.
class BucketCosts {
 public:
  static constexpr std::size_t kMaxDraws = 4096;

  // Preconditions: `histogram` has a sample and outlives this; num_draws is a power of two in
  // [2, kMaxDraws]. O(distinct widths).
  BucketCosts(const WidthHistogram& histogram, const FillLimits& limits, std::size_t num_draws);

  // Returns the cost of the bucket of widths [first, last), indices into the histogram.
  // Precondition: first < last <= number of widths. O(num_draws). Thread-safe.
  [[nodiscard]] std::uint64_t operator()(std::size_t first, std::size_t last) const;

  // Returns what that bucket would cost if nothing were padded but each sample to its own width.
  // O(1). Thread-safe.
  [[nodiscard]] std::uint64_t without_padding(std::size_t first, std::size_t last) const;

 private:
  __extension__ using Wide = unsigned __int128;

  // Batches of a simulated fill.
  struct Batches {
    Wide padded_tokens;
    std::uint64_t samples;
    std::uint64_t batches;
  };

  void draw(std::size_t first, std::size_t last, std::uint32_t* draws) const;
  [[nodiscard]] Batches fill_draws(const std::uint32_t* draws) const;
  [[nodiscard]] std::uint64_t scaled(Wide padded_tokens, std::uint64_t times,
                                     std::uint64_t parts) const;

  const WidthHistogram& histogram_;
  FillLimits limits_;
  std::size_t num_draws_;
  int shift_;                                 // A cost is padded tokens times 2^shift_.
  std::vector<Wide> tokens_below_;            // Of the samples below each width.
  std::vector<std::uint32_t> fractions_;      // Of a bucket, in 2^-32, in the order of the draws.
  std::vector<std::uint32_t> width_of_rank_;  // At evenly spaced ranks, the index of the width.
  std::vector<std::uint32_t> first_rank_;     // The first of these ranks that each width has.
  std::vector<std::uint32_t> admitted_;       // How many of the widths admit so many samples.
};

}  // namespace evenstride
