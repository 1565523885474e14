// What is counted of one part of an epoch, before the parts are summed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/fill.h"
#include "core/stats.h"
#include "core/stats_sums.h"

namespace evenstride {

// What one part of the epoch has of one bucket.
struct BucketPart {
  BucketStatistics counts;
  std::uint64_t step_widths = 0;     // Their sum.
  std::uint64_t last_width = 0;      // Of its last step; 0 if it has none.
  std::uint64_t admitted_width = 0;  // The longest of its batches within the budget.
};

// What one part of the epoch has: consecutive steps.
struct Part {
  std::vector<BucketPart> buckets;
  Shapes shapes;
  std::map<std::uint64_t, std::uint64_t> runs;  // Those that begin here.
  std::uint64_t mixed_steps = 0;
  std::uint64_t crowded_windows = 0;
  PairSums mean_lengths;  // Of steps t and t + 1, for every step t of the part.
  PairSums step_widths;
  double imbalance = 0;
  double worst_imbalance = 0;
  std::uint64_t discrepancy = 0;  // Times the number of steps, so that it is an integer.
};

struct StepTotals {
  std::uint64_t width = 0;
  std::uint64_t most_padded = 0;
  double padded = 0;
  bool is_mixed = false;
};

// Adds what another part has of the same bucket.
inline void add_to(BucketStatistics& to, const BucketStatistics& more) {
  to.samples += more.samples;
  to.batches += more.batches;
  to.tokens = add_saturating(to.tokens, more.tokens);
  to.padded_tokens = add_saturating(to.padded_tokens, more.padded_tokens);
  to.longest_width = std::max(to.longest_width, more.longest_width);
  to.limited_by_token_budget += more.limited_by_token_budget;
  to.limited_by_max_batch_size += more.limited_by_max_batch_size;
  to.limited_by_batch_size_multiple += more.limited_by_batch_size_multiple;
  to.limited_by_samples += more.limited_by_samples;
  to.steps += more.steps;
  to.steps_end = std::max(to.steps_end, more.steps_end);
  for (std::size_t quarter = 0; quarter < kQuarters; ++quarter) {
    to.quarter_steps[quarter] += more.quarter_steps[quarter];
  }
}

// Counts what limits a batch, by the rules of `plan_statistics`. The longest width of its bucket is
// that of batches within the budget, because one sample beyond it would make the rest look full.
inline void count_limit(std::uint64_t samples, std::uint64_t width, std::uint64_t longest_width,
                        const FillLimits& limits, BucketStatistics& to) {
  const auto exceeds_budget = [&](std::uint64_t count, std::uint64_t longest) {
    return multiply_saturating(count, longest) > limits.token_budget;
  };
  const std::uint64_t next_multiple = samples + limits.batch_size_multiple;
  if (samples == limits.max_batch_size) {
    ++to.limited_by_max_batch_size;
  } else if (exceeds_budget(samples + 1, width)) {
    ++to.limited_by_token_budget;
  } else if (limits.batch_size_multiple > 1 && samples % limits.batch_size_multiple == 0 &&
             (next_multiple > limits.max_batch_size ||
              exceeds_budget(next_multiple, longest_width))) {
    ++to.limited_by_batch_size_multiple;
  } else if (exceeds_budget(samples + 1, longest_width)) {
    ++to.limited_by_token_budget;
  } else {
    ++to.limited_by_samples;
  }
}

}  // namespace evenstride
