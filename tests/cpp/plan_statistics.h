// The definitions of a plan's statistics in core/stats.h, transcribed, each computed the plain way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/stats.h"

namespace evenstride::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Plan {
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int16_t> buckets;
  std::vector<std::int64_t> widths;
  std::vector<std::uint64_t> tokens;
  std::uint64_t num_replicas = 1;
  std::size_t num_buckets = 1;
  FillLimits limits;

  void add(std::int16_t bucket, std::int64_t samples, std::int64_t width, std::uint64_t real) {
    offsets.push_back(offsets.back() + samples);
    buckets.push_back(bucket);
    widths.push_back(width);
    tokens.push_back(real);
  }

  [[nodiscard]] std::size_t steps() const { return buckets.size() / num_replicas; }
  [[nodiscard]] std::uint64_t samples(std::size_t batch) const {
    return static_cast<std::uint64_t>(offsets[batch + 1] - offsets[batch]);
  }
  [[nodiscard]] std::uint64_t padded(std::size_t batch) const {
    return samples(batch) * static_cast<std::uint64_t>(widths[batch]);
  }
  [[nodiscard]] PlanView view() const {
    return {offsets,     buckets, std::span<const std::int64_t>(widths), tokens, num_replicas,
            num_buckets, limits};
  }
};

inline std::vector<std::int16_t> labels_by_definition(const Plan& plan) {
  std::vector<std::int16_t> labels;
  for (std::size_t step = 0; step < plan.steps(); ++step) {
    std::vector<std::uint64_t> votes(plan.num_buckets);
    for (std::size_t rank = 0; rank < plan.num_replicas; ++rank) {
      ++votes.at(static_cast<std::size_t>(plan.buckets[step * plan.num_replicas + rank]));
    }
    std::size_t label = 0;
    for (std::size_t k = 0; k < plan.num_buckets; ++k) {
      label = votes[k] >= votes[label] ? k : label;
    }
    labels.push_back(static_cast<std::int16_t>(label));
  }
  return labels;
}

inline double pearson_by_definition(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.empty() || std::set<double>(x.begin(), x.end()).size() == 1 ||
      std::set<double>(y.begin(), y.end()).size() == 1) {
    return kNan;
  }
  long double x_mean = 0;
  long double y_mean = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x_mean += static_cast<long double>(x[i]) / static_cast<long double>(x.size());
    y_mean += static_cast<long double>(y[i]) / static_cast<long double>(x.size());
  }
  long double xx = 0;
  long double yy = 0;
  long double xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - x_mean) * (x[i] - x_mean);
    yy += (y[i] - y_mean) * (y[i] - y_mean);
    xy += (x[i] - x_mean) * (y[i] - y_mean);
  }
  return static_cast<double>(xy / std::sqrt(xx * yy));
}

inline double length_correlation_by_definition(const Plan& plan) {
  std::vector<double> means;
  for (std::size_t step = 0; step < plan.steps(); ++step) {
    double tokens = 0;
    double samples = 0;
    for (std::size_t rank = 0; rank < plan.num_replicas; ++rank) {
      tokens += static_cast<double>(plan.tokens[step * plan.num_replicas + rank]);
      samples += static_cast<double>(plan.samples(step * plan.num_replicas + rank));
    }
    means.push_back(tokens / samples);
  }
  return pearson_by_definition({means.begin(), means.end() - 1}, {means.begin() + 1, means.end()});
}

inline double width_correlation_by_definition(const Plan& plan) {
  std::map<std::int16_t, std::vector<double>> widths;
  const std::vector<std::int16_t> labels = labels_by_definition(plan);
  for (std::size_t step = 0; step < plan.steps(); ++step) {
    std::int64_t width = 0;
    for (std::size_t rank = 0; rank < plan.num_replicas; ++rank) {
      width = std::max(width, plan.widths[step * plan.num_replicas + rank]);
    }
    widths[labels[step]].push_back(static_cast<double>(width));
  }
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (const auto& [label, own] : widths) {
    double mean = 0;
    for (const double width : own) {
      mean += width;
    }
    mean /= static_cast<double>(own.size());
    for (std::size_t i = 1; i < own.size(); ++i) {
      xx += (own[i - 1] - mean) * (own[i - 1] - mean);
      yy += (own[i] - mean) * (own[i] - mean);
      xy += (own[i - 1] - mean) * (own[i] - mean);
    }
  }
  return xx == 0 || yy == 0 ? kNan : xy / std::sqrt(xx * yy);
}

enum class Limit : std::uint8_t { kTokenBudget, kMaxBatchSize, kBatchSizeMultiple, kSamples };

// `longest` is the longest width within the budget of the batch's bucket.
inline Limit limit_by_definition(const Plan& plan, std::size_t batch, std::uint64_t longest) {
  const std::uint64_t samples = plan.samples(batch);
  const auto width = static_cast<std::uint64_t>(plan.widths[batch]);
  const std::uint64_t multiple = plan.limits.batch_size_multiple;
  if (samples == plan.limits.max_batch_size) {
    return Limit::kMaxBatchSize;
  }
  if ((samples + 1) * width > plan.limits.token_budget) {
    return Limit::kTokenBudget;
  }
  if (multiple >= 2 && samples % multiple == 0 &&
      (samples + multiple > plan.limits.max_batch_size ||
       (samples + multiple) * longest > plan.limits.token_budget)) {
    return Limit::kBatchSizeMultiple;
  }
  return (samples + 1) * longest > plan.limits.token_budget ? Limit::kTokenBudget : Limit::kSamples;
}

inline BucketStatistics bucket_by_definition(const Plan& plan, std::size_t k) {
  BucketStatistics bucket;
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    if (std::cmp_equal(plan.buckets[i], k) && plan.padded(i) <= plan.limits.token_budget) {
      longest = std::max(longest, static_cast<std::uint64_t>(plan.widths[i]));
    }
  }
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    if (std::cmp_equal(plan.buckets[i], k)) {
      bucket.samples += plan.samples(i);
      bucket.batches += 1;
      bucket.tokens += plan.tokens[i];
      bucket.padded_tokens += plan.padded(i);
      bucket.longest_width =
          std::max(bucket.longest_width, static_cast<std::uint64_t>(plan.widths[i]));
      const Limit limit = limit_by_definition(plan, i, longest);
      bucket.limited_by_token_budget += limit == Limit::kTokenBudget ? 1U : 0U;
      bucket.limited_by_max_batch_size += limit == Limit::kMaxBatchSize ? 1U : 0U;
      bucket.limited_by_batch_size_multiple += limit == Limit::kBatchSizeMultiple ? 1U : 0U;
      bucket.limited_by_samples += limit == Limit::kSamples ? 1U : 0U;
    }
  }
  const std::vector<std::int16_t> labels = labels_by_definition(plan);
  for (std::size_t step = 0; step < labels.size(); ++step) {
    if (std::cmp_equal(labels[step], k)) {
      bucket.steps += 1;
      bucket.steps_end = step + 1;
      bucket.quarter_steps.at(4 * step / labels.size()) += 1;
    }
  }
  return bucket;
}

inline double discrepancy_by_definition(const std::vector<std::int16_t>& labels,
                                        std::size_t num_buckets) {
  double worst = 0;
  const auto total = static_cast<double>(labels.size());
  for (std::size_t k = 0; k < num_buckets; ++k) {
    double all = 0;
    for (const std::int16_t label : labels) {
      all += std::cmp_equal(label, k) ? 1 : 0;
    }
    double seen = 0;
    for (std::size_t t = 1; t <= labels.size(); ++t) {
      seen += std::cmp_equal(labels[t - 1], k) ? 1 : 0;
      worst = std::max(worst, std::abs(seen - static_cast<double>(t) * all / total));
    }
  }
  return worst;
}

inline std::uint64_t crowded_windows_by_definition(const std::vector<std::int16_t>& labels) {
  std::uint64_t crowded = 0;
  for (std::size_t begin = 0; begin + 4 <= labels.size(); begin += 4) {
    std::map<std::int16_t, int> votes;
    bool is_crowded = false;
    for (std::size_t i = begin; i < begin + 4; ++i) {
      is_crowded |= ++votes[labels[i]] >= 3;
    }
    crowded += is_crowded ? 1U : 0U;
  }
  return crowded;
}

inline PlanStatistics statistics_by_definition(const Plan& plan) {
  PlanStatistics all;
  const std::vector<std::int16_t> labels = labels_by_definition(plan);
  all.steps = plan.steps();
  all.batches = plan.buckets.size();
  std::set<std::pair<std::uint64_t, std::int64_t>> shapes;
  for (std::size_t i = 0; i < all.batches; ++i) {
    all.samples += plan.samples(i);
    all.tokens += plan.tokens[i];
    all.padded_tokens += plan.padded(i);
    shapes.emplace(plan.samples(i), plan.widths[i]);
  }
  all.distinct_shapes = shapes.size();
  all.earliest_exhaustion = 1;
  for (std::size_t k = 0; k < plan.num_buckets; ++k) {
    all.buckets.push_back(bucket_by_definition(plan, k));
    if (all.buckets[k].steps > 0) {
      all.earliest_exhaustion =
          std::min(all.earliest_exhaustion,
                   static_cast<double>(all.buckets[k].steps_end) / static_cast<double>(all.steps));
    }
  }
  std::map<std::uint64_t, std::uint64_t> runs;
  std::uint64_t run = 0;
  for (std::size_t step = 0; step < all.steps; ++step) {
    double most = 0;
    double sum = 0;
    bool is_mixed = false;
    for (std::size_t rank = 0; rank < plan.num_replicas; ++rank) {
      const std::size_t batch = step * plan.num_replicas + rank;
      most = std::max(most, static_cast<double>(plan.padded(batch)));
      sum += static_cast<double>(plan.padded(batch));
      is_mixed |= plan.buckets[batch] != plan.buckets[step * plan.num_replicas];
    }
    const double imbalance = most / (sum / static_cast<double>(plan.num_replicas));
    all.mean_rank_imbalance += imbalance / static_cast<double>(all.steps);
    all.worst_rank_imbalance = std::max(all.worst_rank_imbalance, imbalance);
    all.mixed_steps += is_mixed ? 1U : 0U;
    ++run;
    if (step + 1 == all.steps || labels[step + 1] != labels[step]) {
      ++runs[run];
      run = 0;
    }
  }
  all.runs.assign(runs.begin(), runs.end());
  all.prefix_discrepancy = discrepancy_by_definition(labels, plan.num_buckets);
  all.windows = all.steps / 4;
  all.crowded_windows = crowded_windows_by_definition(labels);
  all.length_correlation = length_correlation_by_definition(plan);
  all.width_correlation = width_correlation_by_definition(plan);
  return all;
}

}  // namespace evenstride::testing
