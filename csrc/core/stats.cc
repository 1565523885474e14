#include "core/stats.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/labels.h"
#include "core/order.h"
#include "core/stats_parts.h"
#include "core/stats_sums.h"

namespace evenstride {
namespace {

constexpr std::size_t kWindow = 4;

// Throws for the first of the batches that breaks a rule; the caller knows that one does.
template <class Width>
[[noreturn]] void throw_for(const PlanView& plan, Width width, std::size_t batch) {
  const std::string index = "[" + std::to_string(batch);
  const std::int64_t begin = plan.offsets[batch];
  const std::int64_t end = plan.offsets[batch + 1];
  if (begin >= end) {
    throw std::invalid_argument(
        "`offsets[" + std::to_string(batch + 1) + "]` must be above offsets" + index +
        "] = " + std::to_string(begin) + ", but is " + std::to_string(end) + ".");
  }
  if (width < 1) {
    throw std::invalid_argument("`widths" + index + "]` must be at least 1, but is " +
                                std::to_string(width) + ".");
  }
  throw std::invalid_argument("`buckets" + index + "]` must be in [0, " +
                              std::to_string(plan.num_buckets) + "), but is " +
                              std::to_string(plan.buckets[batch]) + ".");
}

// Reads the plan twice: the second time with totals that only the first can know.
template <class Width>
class Reader {
 public:
  Reader(const PlanView& plan, std::span<const Width> widths, Team& team)
      : plan_(plan),
        widths_(widths),
        team_(team),
        ranks_(static_cast<std::size_t>(plan.num_replicas)),
        num_steps_(plan.buckets.size() / ranks_),
        labels_(plan.buckets) {
    // Their number does not depend on the team, so that rounding does not either; and what a part
    // has of each bucket must not outgrow the plan.
    const std::size_t least = std::max(std::size_t{1} << 14, 16 * plan.num_buckets);
    parts_.resize(std::clamp<std::size_t>(num_steps_ / least, 1, 32));
  }

  PlanStatistics read() {
    if (ranks_ > 1) {
      label_steps();
    }
    team_.for_each(parts_.size(), [this](std::size_t p, int) { count_part(p); });
    PlanStatistics result;
    std::vector<std::vector<BucketPart>> before = sum_buckets(result);
    team_.for_each(parts_.size(),
                   [&](std::size_t p, int) { relate_part(p, std::move(before[p])); });
    sum_parts(result);
    return result;
  }

 private:
  // Parts begin at multiples of a window, so that no window is in two.
  [[nodiscard]] std::size_t part_begin(std::size_t part) const {
    return part == parts_.size() ? num_steps_
                                 : num_steps_ * part / parts_.size() / kWindow * kWindow;
  }

  void label_steps() {
    own_labels_.resize(num_steps_);
    team_.for_each(parts_.size(), [this](std::size_t p, int) {
      StepCheck check(team_.watch());
      for (std::size_t step = part_begin(p); step < part_begin(p + 1); ++step) {
        check(ranks_);
        own_labels_[step] = label_of(plan_.buckets.subspan(step * ranks_, ranks_));
      }
    });
    labels_ = own_labels_;
  }

  StepTotals count_step(std::size_t step, Part& part) const {
    StepTotals totals;
    for (std::size_t i = step * ranks_; i < (step + 1) * ranks_; ++i) {
      const auto bucket = static_cast<std::size_t>(plan_.buckets[i]);  // Huge if it is negative.
      if (plan_.offsets[i] >= plan_.offsets[i + 1] || widths_[i] < 1 ||
          bucket >= plan_.num_buckets) {
        throw_for(plan_, widths_[i], i);
      }
      const std::uint64_t samples = samples_of(i);
      const auto width = static_cast<std::uint64_t>(widths_[i]);
      const std::uint64_t padded = multiply_saturating(samples, width);
      BucketPart& to = part.buckets[bucket];
      to.counts.samples += samples;
      ++to.counts.batches;
      to.counts.tokens = add_saturating(to.counts.tokens, plan_.tokens[i]);
      to.counts.padded_tokens = add_saturating(to.counts.padded_tokens, padded);
      to.counts.longest_width = std::max(to.counts.longest_width, width);
      if (padded <= plan_.limits.token_budget) {
        to.admitted_width = std::max(to.admitted_width, width);
      }
      part.shapes.insert(samples, width);
      totals.width = std::max(totals.width, width);
      totals.most_padded = std::max(totals.most_padded, padded);
      totals.padded += static_cast<double>(padded);
      totals.is_mixed |= plan_.buckets[i] != labels_[step];
    }
    return totals;
  }

  void count_part(std::size_t p) {
    Part& part = parts_[p];
    part.buckets.resize(plan_.num_buckets);
    const std::size_t begin = part_begin(p);
    const std::size_t end = part_begin(p + 1);
    // Any centre between the least and the greatest value keeps the digits; one of the values makes
    // the variance of equal ones exactly 0.
    const double x_centre = mean_length(0);
    const double y_centre = mean_length(std::min<std::size_t>(1, num_steps_ - 1));
    double mean = mean_length(begin);
    std::size_t quarter = 0;
    StepCheck check(team_.watch());
    for (std::size_t step = begin; step < end; ++step) {
      check(ranks_);
      const StepTotals totals = count_step(step, part);
      BucketPart& to = part.buckets[static_cast<std::size_t>(labels_[step])];
      while ((quarter + 1) * num_steps_ <= step * kQuarters) {
        ++quarter;
      }
      ++to.counts.steps;
      ++to.counts.quarter_steps[quarter];
      to.counts.steps_end = step + 1;
      to.step_widths = add_saturating(to.step_widths, totals.width);
      to.last_width = totals.width;
      part.mixed_steps += totals.is_mixed ? 1 : 0;
      const double imbalance = ranks_ == 1 ? 1.0
                                           : static_cast<double>(totals.most_padded) *
                                                 static_cast<double>(ranks_) / totals.padded;
      part.imbalance += imbalance;
      part.worst_imbalance = std::max(part.worst_imbalance, imbalance);
      if (step + 1 < num_steps_) {
        const double next = mean_length(step + 1);
        part.mean_lengths.add(mean - x_centre, next - y_centre);
        mean = next;
      }
    }
    count_windows(begin, end, part);
    count_runs(begin, end, part);
  }

  void count_windows(std::size_t begin, std::size_t end, Part& part) const {
    for (std::size_t step = begin; step + kWindow <= end; step += kWindow) {
      const std::int16_t* const l = &labels_[step];
      const bool is_crowded = l[0] == l[1] ? l[1] == l[2] || l[1] == l[3]
                                           : l[2] == l[3] && (l[2] == l[0] || l[2] == l[1]);
      part.crowded_windows += is_crowded ? 1 : 0;
    }
  }

  // Counts the runs that begin in [begin, end), each to its end, even in a later part.
  void count_runs(std::size_t begin, std::size_t end, Part& part) const {
    std::size_t run_begin = begin;
    while (run_begin > 0 && run_begin < end && labels_[run_begin] == labels_[run_begin - 1]) {
      ++run_begin;
    }
    while (run_begin < end) {
      std::size_t run_end = run_begin + 1;
      while (run_end < num_steps_ && labels_[run_end] == labels_[run_begin]) {
        ++run_end;
      }
      ++part.runs[run_end - run_begin];
      run_begin = run_end;
    }
  }

  // Sums the buckets of all parts. Returns, for each part, the sums of the parts before it.
  std::vector<std::vector<BucketPart>> sum_buckets(PlanStatistics& result) {
    std::vector<std::vector<BucketPart>> before;
    before.reserve(parts_.size());
    std::vector<BucketPart> sums(plan_.num_buckets);
    for (const Part& part : parts_) {
      before.push_back(sums);
      for (std::size_t k = 0; k < sums.size(); ++k) {
        const BucketPart& more = part.buckets[k];
        add_to(sums[k].counts, more.counts);
        sums[k].step_widths = add_saturating(sums[k].step_widths, more.step_widths);
        sums[k].last_width = more.counts.steps > 0 ? more.last_width : sums[k].last_width;
        sums[k].admitted_width = std::max(sums[k].admitted_width, more.admitted_width);
      }
    }
    totals_ = std::move(sums);
    result.buckets.reserve(totals_.size());
    for (const BucketPart& bucket : totals_) {
      result.buckets.push_back(bucket.counts);
    }
    return before;
  }

  void relate_part(std::size_t p, std::vector<BucketPart> seen) {
    Part& part = parts_[p];
    std::vector<double> means;
    means.reserve(totals_.size());
    for (BucketPart& bucket : part.buckets) {
      bucket.counts = {};
    }
    for (const BucketPart& bucket : totals_) {
      means.push_back(bucket.counts.steps == 0 ? 0.0
                                               : mean_of(bucket.step_widths, bucket.counts.steps));
    }
    StepCheck check(team_.watch());
    for (std::size_t step = part_begin(p); step < part_begin(p + 1); ++step) {
      check(ranks_);
      std::uint64_t width = 0;
      for (std::size_t i = step * ranks_; i < (step + 1) * ranks_; ++i) {
        const auto bucket = static_cast<std::size_t>(plan_.buckets[i]);
        const auto batch_width = static_cast<std::uint64_t>(widths_[i]);
        width = std::max(width, batch_width);
        count_limit(samples_of(i), batch_width, totals_[bucket].admitted_width, plan_.limits,
                    part.buckets[bucket].counts);
      }
      const auto label = static_cast<std::size_t>(labels_[step]);
      BucketPart& to = seen[label];
      // Between its own steps a bucket's deviation moves one way, so that it is greatest next to
      // them. Both products are below 2^64.
      const std::uint64_t all = totals_[label].counts.steps;
      for (std::uint64_t done = 0; done < 2; ++done) {
        const std::uint64_t got = (to.counts.steps + done) * num_steps_;
        const std::uint64_t due = (step + done) * all;
        part.discrepancy = std::max(part.discrepancy, got > due ? got - due : due - got);
      }
      if (to.counts.steps > 0) {
        part.step_widths.add(static_cast<double>(to.last_width) - means[label],
                             static_cast<double>(width) - means[label]);
      }
      ++to.counts.steps;
      to.last_width = width;
    }
  }

  void sum_parts(PlanStatistics& result) {
    Part sums;
    for (const Part& part : parts_) {
      sums.shapes.insert_all(part.shapes);
      for (const auto& [length, runs] : part.runs) {
        sums.runs[length] += runs;
      }
      sums.mixed_steps += part.mixed_steps;
      sums.crowded_windows += part.crowded_windows;
      sums.mean_lengths.add(part.mean_lengths);
      sums.step_widths.add(part.step_widths);
      sums.imbalance += part.imbalance;
      sums.worst_imbalance = std::max(sums.worst_imbalance, part.worst_imbalance);
      sums.discrepancy = std::max(sums.discrepancy, part.discrepancy);
      for (std::size_t k = 0; k < part.buckets.size(); ++k) {
        add_to(result.buckets[k], part.buckets[k].counts);
      }
    }
    std::uint64_t first_end = num_steps_;
    for (const BucketStatistics& bucket : result.buckets) {
      result.batches += bucket.batches;
      result.samples += bucket.samples;
      result.tokens = add_saturating(result.tokens, bucket.tokens);
      result.padded_tokens = add_saturating(result.padded_tokens, bucket.padded_tokens);
      if (bucket.steps > 0) {
        first_end = std::min(first_end, bucket.steps_end);
      }
    }
    const auto steps = static_cast<double>(num_steps_);
    result.steps = num_steps_;
    result.mixed_steps = sums.mixed_steps;
    result.distinct_shapes = sums.shapes.size();
    result.earliest_exhaustion = static_cast<double>(first_end) / steps;
    result.runs.assign(sums.runs.begin(), sums.runs.end());
    result.prefix_discrepancy = static_cast<double>(sums.discrepancy) / steps;
    result.windows = num_steps_ / kWindow;
    result.crowded_windows = sums.crowded_windows;
    result.length_correlation = sums.mean_lengths.correlation_about_means();
    result.width_correlation = sums.step_widths.correlation_about_centres();
    result.mean_rank_imbalance = sums.imbalance / steps;
    result.worst_rank_imbalance = sums.worst_imbalance;
  }

  [[nodiscard]] std::uint64_t samples_of(std::size_t batch) const {
    return static_cast<std::uint64_t>(plan_.offsets[batch + 1]) -
           static_cast<std::uint64_t>(plan_.offsets[batch]);
  }

  [[nodiscard]] double mean_length(std::size_t step) const {
    std::uint64_t tokens = 0;
    std::uint64_t samples = 0;
    for (std::size_t i = step * ranks_; i < (step + 1) * ranks_; ++i) {
      tokens = add_saturating(tokens, plan_.tokens[i]);
      samples += samples_of(i);
    }
    return static_cast<double>(tokens) / static_cast<double>(samples);
  }

  const PlanView& plan_;
  std::span<const Width> widths_;
  Team& team_;
  std::size_t ranks_;
  std::size_t num_steps_;
  std::span<const std::int16_t>
      labels_;  // Of all steps; with one rank, the buckets of the batches.
  std::vector<std::int16_t> own_labels_;
  std::vector<Part> parts_;
  std::vector<BucketPart> totals_;
};

void check_sizes(const PlanView& plan) {
  const std::uint64_t batches = plan.buckets.size();
  const auto check = [&](const char* name, std::size_t entries, std::uint64_t expected) {
    if (entries != expected) {
      throw std::invalid_argument(
          "`" + std::string(name) + "` must have " + std::to_string(expected) + " entries for " +
          std::to_string(batches) + " batches, but has " + std::to_string(entries) + ".");
    }
  };
  check("offsets", plan.offsets.size(), batches + 1);
  check("widths", std::visit([](const auto& widths) { return widths.size(); }, plan.widths),
        batches);
  check("tokens", plan.tokens.size(), batches);
  if (plan.num_replicas == 0 || batches % plan.num_replicas != 0) {
    throw std::invalid_argument(
        "`num_replicas` must be at least 1 and divide the number of batches, " +
        std::to_string(batches) + ", but is " + std::to_string(plan.num_replicas) + ".");
  }
  const std::uint64_t steps = batches / plan.num_replicas;
  if (steps == 0 || steps > kMostSteps) {
    throw std::invalid_argument("The number of steps must be in [1, 2**32), but is " +
                                std::to_string(steps) + ".");
  }
}

}  // namespace

PlanStatistics plan_statistics(const PlanView& plan, Team& team) {
  check_sizes(plan);
  return std::visit(
      [&]<class Width>(const std::span<const Width>& widths) {
        return Reader<Width>(plan, widths, team).read();
      },
      plan.widths);
}

}  // namespace evenstride
