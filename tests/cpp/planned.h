// Whole plans in a plain form, and what each of them must keep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/plan.h"
#include "core/random.h"
#include "samples.h"

namespace evenstride::testing {

// What fixes the plans of all epochs.
struct Task {
  Values lengths;
  Values edges;
  PlanOptions options;
  StepOptions steps;
};

struct Plan {
  Batches batches;
  std::vector<std::int16_t> buckets;
  Values widths;
  Values repeats;
  Values dropped;
  std::uint64_t num_steps = 0;

  friend bool operator==(const Plan&, const Plan&) = default;
};

inline Plan plain(const EpochPlan& from) {
  Plan plan;
  std::visit(
      [&](const auto& indices) {
        for (std::size_t i = 0; i + 1 < from.offsets.size(); ++i) {
          plan.batches.emplace_back(indices.data() + from.offsets[i],
                                    indices.data() + from.offsets[i + 1]);
        }
        EXPECT_EQ(from.offsets[0], 0);
        EXPECT_EQ(static_cast<std::size_t>(from.offsets[from.offsets.size() - 1]), indices.size());
      },
      from.indices);
  std::visit(
      [&](const auto& widths) { plan.widths.assign(widths.data(), widths.data() + widths.size()); },
      from.widths);
  plan.buckets.assign(from.buckets.data(), from.buckets.data() + from.buckets.size());
  plan.repeats = from.repeats;
  plan.dropped = from.dropped;
  plan.num_steps = from.num_steps;
  return plan;
}

inline Plan plan_of(const Task& task, std::uint64_t epoch = 0) {
  Planner planner(view(task.lengths), task.edges, task.options);
  return plain(planner.plan(epoch, task.steps));
}

// Returns what is wrong with a plan, or nothing.
inline std::string fault_of(const Plan& plan, const Task& task, const Planner& planner) {
  FillLimits limits = task.options.limits;
  limits.admitted_end = end_of_admitted(limits, task.options.admission.max_length);
  const Classes& classes = planner.classes();
  if (plan.num_steps == 0 || plan.batches.size() != plan.num_steps * task.steps.num_replicas ||
      plan.buckets.size() != plan.batches.size() || plan.widths.size() != plan.batches.size()) {
    return "wrong number of batches";
  }
  Values expected = plan.repeats;
  for (std::size_t i = 0; i < task.lengths.size(); ++i) {
    if (classes(task.lengths[i]) <= classes.alone()) {
      expected.push_back(i);
    }
  }
  Values used = joined(plan.batches);
  used.insert(used.end(), plan.dropped.begin(), plan.dropped.end());
  if (sorted(used) != sorted(expected)) {
    return "samples were lost or repeated";
  }
  if (!plan.dropped.empty() && !task.steps.drop_last) {
    return "samples were dropped";
  }
  if (const auto kept = keep_limits(plan.batches, task.lengths, limits); !kept) {
    return kept.message();
  }
  const Values edges = planner.edges();
  for (std::size_t i = 0; i < plan.batches.size(); ++i) {
    const std::uint64_t longest = longest_of(plan.batches[i], task.lengths);
    if (plan.widths[i] != padded_tokens(1, longest, limits)) {
      return "wrong width of batch " + std::to_string(i);
    }
    const auto bucket = static_cast<std::size_t>(plan.buckets[i]);
    const bool is_alone =
        classes(longest) == classes.alone() && task.options.order != Order::kMixed;
    const bool fits = std::ranges::all_of(plan.batches[i], [&](std::uint64_t index) {
      const std::uint64_t length = task.lengths[index];
      return (length >= edges.at(bucket) || task.options.order == Order::kMixed) &&
             length < edges.at(bucket + 1);
    });
    if (is_alone ? bucket != classes.num_buckets() - 1 : !fits) {
      return "wrong bucket of batch " + std::to_string(i);
    }
  }
  return "";
}

inline std::uint64_t hash_of(const Plan& plan) {
  std::uint64_t hash = mix64(plan.num_steps);
  const auto add = [&](const Values& values) {
    hash = mix64(hash ^ values.size());
    for (const std::uint64_t value : values) {
      hash = mix64(hash ^ value);
    }
  };
  for (const Values& batch : plan.batches) {
    add(batch);
  }
  add({plan.buckets.begin(), plan.buckets.end()});
  add(plan.widths);
  add(plan.repeats);
  add(plan.dropped);
  return hash;
}

}  // namespace evenstride::testing
