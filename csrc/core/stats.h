// What can be asked of a planned epoch: how full its batches are, and how evenly its buckets come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/fill.h"
#include "core/lengths.h"
#include "core/threads.h"

namespace evenstride {

using IndexView = std::variant<std::span<const std::uint32_t>, std::span<const std::uint64_t>,
                               std::span<const std::int64_t>>;
using WidthView = std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>>;

// Returns the real tokens of each batch: the sum of the lengths of its samples.
//
// Batch i has samples indices[offsets[i]] to indices[offsets[i + 1] - 1]. Throws
// std::invalid_argument if `offsets` is empty, does not rise from at least 0 to at most the number
// of indices, or if an index is outside `lengths`. Precondition: no length is negative, and the sum
// of each batch is below 2^64. O(indices), divided among the team.
[[nodiscard]] std::vector<std::uint64_t> batch_tokens(const Lengths& lengths,
                                                      const IndexView& indices,
                                                      std::span<const std::int64_t> offsets,
                                                      Team& team);

// The batches of an epoch without their samples. Batch i has offsets[i + 1] - offsets[i] samples;
// step t has batches t * num_replicas to (t + 1) * num_replicas - 1.
struct PlanView {
  std::span<const std::int64_t> offsets;  // One more than there are batches.
  std::span<const std::int16_t> buckets;  // In [0, num_buckets).
  WidthView widths;                       // At least 1.
  std::span<const std::uint64_t> tokens;  // As `batch_tokens` returns them.
  std::uint64_t num_replicas = 1;
  std::size_t num_buckets = 1;
  FillLimits limits;  // Those that the batches were filled under.
};

inline constexpr std::size_t kQuarters = 4;

// One bucket. Sums saturate at 2^64 - 1. Every batch is in just one of the four counts of what kept
// it from being larger; `plan_statistics` has the rules.
struct BucketStatistics {
  std::uint64_t samples = 0;
  std::uint64_t batches = 0;
  std::uint64_t tokens = 0;
  std::uint64_t padded_tokens = 0;
  std::uint64_t longest_width = 0;  // In tokens; 0 if it has no batch.
  std::uint64_t limited_by_token_budget = 0;
  std::uint64_t limited_by_max_batch_size = 0;
  std::uint64_t limited_by_batch_size_multiple = 0;
  std::uint64_t limited_by_samples = 0;
  std::uint64_t steps = 0;                               // With its label, see `label_of`.
  std::uint64_t steps_end = 0;                           // One past its last; 0 if it has none.
  std::array<std::uint64_t, kQuarters> quarter_steps{};  // Step t of T is in floor(4 * t / T).
};

// A whole epoch. A number that is not defined, as the correlation of equal values, is NaN.
struct PlanStatistics {
  std::uint64_t steps = 0;
  std::uint64_t mixed_steps = 0;  // Whose batches are of several buckets.
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;  // Saturates at 2^64 - 1, as the next one.
  std::uint64_t padded_tokens = 0;
  std::uint64_t distinct_shapes = 0;  // Pairs of samples and width among the batches.
  std::vector<BucketStatistics> buckets;

  // The least steps_end / steps of a bucket that has steps; in (0, 1].
  double earliest_exhaustion = 0;
  // Runs of steps with one label: (length in steps, number of runs), rising by length.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  // The greatest abs(steps of k among the first t - t * share of k) over t and k; in steps.
  double prefix_discrepancy = 0;
  // Windows are steps 4 * i to 4 * i + 3 as far as they are whole; crowded ones have a label three
  // times or more.
  std::uint64_t windows = 0;
  std::uint64_t crowded_windows = 0;
  // Pearson's correlation of the mean lengths (tokens / samples) of steps t and t + 1; in [-1, 1].
  double length_correlation = 0;
  // The correlation of the widths of neighbouring steps of one label, each less the mean of its
  // label, pooled over labels; a step is as wide as its widest batch. In [-1, 1].
  double width_correlation = 0;
  // The padded tokens of a step's most expensive rank over the mean of its ranks; at least 1, which
  // is perfect balance. The mean over all steps, and the worst step.
  double mean_rank_imbalance = 0;
  double worst_rank_imbalance = 0;
};

// Returns the statistics of a plan. They do not depend on the team.
//
// What limits a batch is the first of these that holds. Its samples are max_batch_size: that. One
// sample more of its width would exceed the budget: the budget. Its samples are a multiple of
// batch_size_multiple (2 or more), and as many more as that would be too many: the multiple. One
// sample more of the bucket's longest width (within the budget) would exceed it, so that the next
// sample may have been too long: the budget. Else it is samples: the bucket had no more, or they
// were spread over more batches, so that all ranks have equally many.
//
// Throws std::invalid_argument, naming the rule and the value, if there is no step or 2^32 or more,
// if sizes do not agree or values are outside the ranges above, or if a batch is empty.
//
// For B batches, K buckets and S distinct shapes takes O(B + K) time, divided among the team, and
// O(K + S) memory, with 2 bytes a step if there are several replicas.
[[nodiscard]] PlanStatistics plan_statistics(const PlanView& plan, Team& team);

}  // namespace evenstride
