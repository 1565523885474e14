// What a bucket costs: the padded tokens and the batches that the real fill would make of it.
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
// A batch costs its padded tokens and an overhead, for a step takes time beyond its tokens: a 128th
// of the padded tokens of the largest batch that the limits and the data set allow, at least 1.
//
// A bucket's samples are represented by `num_draws` of its quantiles, in one pseudo-random order
// that all buckets share, so that their differences are not noise. They are filled greedily to the
// real longest sample, round and round until the batch that holds the last draw is full; its cost a
// sample, times the number of samples, is the cost of the bucket but for its last batch. That one
// lacks (samples a batch - 1) / 2 samples on average and is counted as if full, so that a tiny
// bucket costs a whole batch. Where not even the two shortest samples fit a batch, the cost is
// exact.
//
// Of a data set of at most kFewSamples, a bucket's samples themselves are filled, in many random
// orders that all buckets share: its cost is the mean, and the last batch counts as it is. There, a
// bucket has so few batches that the last one is much of it: to count it as if full would leave
// samples together that pad each other, for no fewer batches.
class BucketCosts {
 public:
  static constexpr std::size_t kMaxDraws = 4096;
  static constexpr std::uint64_t kFewSamples = 256;

  // Preconditions: `histogram` has a sample and outlives this; num_draws is a power of two in
  // [2, kMaxDraws]. O(distinct widths + num_draws).
  BucketCosts(const WidthHistogram& histogram, const FillLimits& limits, std::size_t num_draws);

  // Returns the cost of the bucket of widths [first, last), indices into the histogram.
  // Precondition: first < last <= number of widths. O(num_draws + kFewSamples). Thread-safe.
  [[nodiscard]] std::uint64_t operator()(std::size_t first, std::size_t last) const;

  // Returns what that bucket would cost if nothing were padded but each sample to its own width,
  // and batches had no overhead.
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

  // A sample of a small data set.
  struct Sample {
    std::uint64_t width;

    [[nodiscard]] std::uint64_t length() const noexcept { return width; }
  };

  void draw(std::size_t first, std::size_t last, std::uint32_t* draws) const;
  [[nodiscard]] Batches fill_draws(const std::uint32_t* draws) const;
  [[nodiscard]] std::uint64_t cost_of_few(std::size_t first, std::size_t last) const;
  [[nodiscard]] std::uint64_t scaled(Wide tokens, std::uint64_t times, std::uint64_t parts) const;

  const WidthHistogram& histogram_;
  FillLimits limits_;
  std::size_t num_draws_;
  int shift_;                                 // A cost is tokens times 2^shift_.
  std::uint64_t batch_overhead_;              // In tokens.
  std::vector<Wide> tokens_below_;            // Of the samples below each width.
  std::vector<std::uint32_t> fractions_;      // Of a bucket, in 2^-32, in the order of the draws.
  std::vector<std::uint32_t> width_of_rank_;  // At evenly spaced ranks, the index of the width.
  std::vector<std::uint32_t> first_rank_;     // The first of these ranks that each width has.
  std::vector<std::uint32_t> admitted_;       // How many of the widths admit so many samples.
  LengthBounds bounds_;
  std::vector<std::vector<Sample>> orders_;  // Of all samples, if they are few.
};

}  // namespace evenstride
