// The statistics of a plan against their definitions, and by hand.
#include "core/stats.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/labels.h"
#include "core/threads.h"
#include "plan_statistics.h"

namespace evenstride {
namespace {

using testing::Plan;
using testing::statistics_by_definition;

constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();

PlanStatistics statistics(const Plan& plan, int num_threads = 2) {
  Team team(num_threads);
  return plan_statistics(plan.view(), team);
}

// One batch a step, of two samples of length 3 and 4.
Plan plan_of_labels(const std::vector<std::int16_t>& labels, std::size_t num_buckets) {
  Plan plan;
  plan.num_buckets = num_buckets;
  for (const std::int16_t label : labels) {
    plan.add(label, 2, 4, 7);
  }
  return plan;
}

// ---- Comparison ----

void expect_equal(const BucketStatistics& a, const BucketStatistics& b) {
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.batches, b.batches);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.padded_tokens, b.padded_tokens);
  EXPECT_EQ(a.longest_width, b.longest_width);
  EXPECT_EQ(a.limited_by_token_budget, b.limited_by_token_budget);
  EXPECT_EQ(a.limited_by_max_batch_size, b.limited_by_max_batch_size);
  EXPECT_EQ(a.limited_by_batch_size_multiple, b.limited_by_batch_size_multiple);
  EXPECT_EQ(a.limited_by_samples, b.limited_by_samples);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.steps_end, b.steps_end);
  EXPECT_EQ(a.quarter_steps, b.quarter_steps);
}

void expect_close(const char* name, double a, double b, double tolerance) {
  if (std::isnan(b) || tolerance == 0) {
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << name << " " << a << " " << b;
  } else {
    EXPECT_NEAR(a, b, tolerance) << name;
  }
}

void expect_equal(const PlanStatistics& a, const PlanStatistics& b, double tolerance = 1e-9) {
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.mixed_steps, b.mixed_steps);
  EXPECT_EQ(a.batches, b.batches);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.padded_tokens, b.padded_tokens);
  EXPECT_EQ(a.distinct_shapes, b.distinct_shapes);
  ASSERT_EQ(a.buckets.size(), b.buckets.size());
  for (std::size_t k = 0; k < a.buckets.size(); ++k) {
    SCOPED_TRACE("bucket " + std::to_string(k));
    expect_equal(a.buckets[k], b.buckets[k]);
  }
  EXPECT_EQ(a.runs, b.runs);
  EXPECT_EQ(a.windows, b.windows);
  EXPECT_EQ(a.crowded_windows, b.crowded_windows);
  expect_close("exhaustion", a.earliest_exhaustion, b.earliest_exhaustion, tolerance);
  expect_close("discrepancy", a.prefix_discrepancy, b.prefix_discrepancy, tolerance);
  expect_close("lengths", a.length_correlation, b.length_correlation, tolerance);
  expect_close("widths", a.width_correlation, b.width_correlation, tolerance);
  expect_close("mean", a.mean_rank_imbalance, b.mean_rank_imbalance, tolerance);
  expect_close("worst", a.worst_rank_imbalance, b.worst_rank_imbalance, tolerance);
}

Plan random_plan(std::mt19937_64& random, std::uint64_t num_steps, std::uint64_t most_samples) {
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  Plan plan;
  plan.num_replicas = 1 + below(4);
  plan.num_buckets = 1 + below(5);
  plan.limits.token_budget = 20 + below(200);
  plan.limits.max_batch_size = below(3) == 0 ? kUnlimited : most_samples;
  plan.limits.batch_size_multiple = 1 + below(3);
  for (std::uint64_t step = 0; step < num_steps; ++step) {
    const std::uint64_t label = below(1 + below(plan.num_buckets));
    const bool is_mixed = below(4) == 0;
    for (std::uint64_t rank = 0; rank < plan.num_replicas; ++rank) {
      const std::uint64_t bucket = is_mixed ? below(plan.num_buckets) : label;
      const std::uint64_t samples = 1 + below(most_samples);
      const std::uint64_t width = 1 + 10 * bucket + below(10);
      plan.add(static_cast<std::int16_t>(bucket), static_cast<std::int64_t>(samples),
               static_cast<std::int64_t>(width), width + below(samples * width - width + 1));
    }
  }
  return plan;
}

// ---- Claims ----

TEST(StatsTest, StatisticsMatchTheirDefinitions) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    SCOPED_TRACE(i);
    const Plan plan = random_plan(random, 1 + random() % 40, 1 + random() % 8);
    expect_equal(statistics(plan, 1), statistics_by_definition(plan));
    if (HasFailure()) {
      break;
    }
  }
}

TEST(StatsTest, APlanOfSeveralPartsIsOneEpoch) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    // A part has at least 16,384 steps; and 5,000 widths or so make the table of shapes grow.
    Plan plan = random_plan(random, 60'000 + random() % 10'000, 100);
    for (std::size_t k = 0; k < plan.widths.size(); k += 7) {
      plan.widths[k] += static_cast<std::int64_t>(random() % 5000);
    }
    // Two runs that go on from one part to the next, one of them over more than a whole part.
    for (std::size_t k = 14'000; k < 52'000; ++k) {
      plan.buckets[k * plan.num_replicas] = 0;
      for (std::size_t rank = 1; rank < plan.num_replicas; ++rank) {
        plan.buckets[k * plan.num_replicas + rank] = 0;
      }
    }
    plan.limits.token_budget = 20'000;
    const PlanStatistics expected = statistics_by_definition(plan);
    expect_equal(statistics(plan), expected, 1e-7);
  }
}

TEST(StatsTest, TheNumberOfThreadsChangesNothing) {
  std::mt19937_64 random(3);
  const Plan plan = random_plan(random, 70'000, 50);
  expect_equal(statistics(plan, 1), statistics(plan, 5), 0);
}

TEST(StatsTest, WidthsOf32BitsAreReadAlike) {
  std::mt19937_64 random(4);
  const Plan plan = random_plan(random, 50, 8);
  const std::vector<std::int32_t> narrow(plan.widths.begin(), plan.widths.end());
  PlanView view = plan.view();
  view.widths = std::span(narrow);
  Team team(1);
  expect_equal(plan_statistics(view, team), statistics(plan), 0);
}

TEST(StatsTest, AnEpochOfTwoRanksByHand) {
  Plan plan;
  plan.num_replicas = 2;
  plan.num_buckets = 3;
  plan.limits = {.token_budget = 12, .max_batch_size = 4};
  plan.add(0, 4, 3, 10);  // Step 0, of bucket 0: 12 and 9 padded tokens.
  plan.add(0, 3, 3, 9);
  plan.add(2, 2, 6, 12);  // Step 1, mixed, a tie: the longer bucket, 2.
  plan.add(0, 1, 3, 3);
  plan.add(2, 1, 8, 8);  // Step 2, of bucket 2.
  plan.add(2, 1, 8, 7);
  const PlanStatistics found = statistics(plan);
  EXPECT_EQ(found.steps, 3);
  EXPECT_EQ(found.mixed_steps, 1);
  EXPECT_EQ(found.batches, 6);
  EXPECT_EQ(found.samples, 12);
  EXPECT_EQ(found.tokens, 49);
  EXPECT_EQ(found.padded_tokens, 52);
  EXPECT_EQ(found.distinct_shapes, 5);
  EXPECT_EQ(found.buckets[0].batches, 3);
  EXPECT_EQ(found.buckets[0].steps, 1);
  EXPECT_EQ(found.buckets[0].samples, 8);
  EXPECT_EQ(found.buckets[0].limited_by_max_batch_size, 1);  // Four samples.
  EXPECT_EQ(found.buckets[0].limited_by_samples, 2);         // Three and one could have been four.
  EXPECT_EQ(found.buckets[1].steps + found.buckets[1].batches, 0);
  EXPECT_EQ(found.buckets[2].steps, 2);
  EXPECT_EQ(found.buckets[2].longest_width, 8);
  EXPECT_EQ(found.buckets[2].limited_by_token_budget, 3);
  EXPECT_DOUBLE_EQ(found.earliest_exhaustion, 1.0 / 3);
  EXPECT_EQ(found.runs, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 1}, {2, 1}}));
  EXPECT_DOUBLE_EQ(found.prefix_discrepancy, 2.0 / 3);  // Bucket 0 has 1 of 1 after step 0.
  EXPECT_DOUBLE_EQ(found.worst_rank_imbalance, 12 / 7.5);
  EXPECT_DOUBLE_EQ(found.mean_rank_imbalance, (12 / 10.5 + 12 / 7.5 + 1) / 3);
}

TEST(StatsTest, AQuarterOfTheEpochIsFloorOfFourTimesTheStep) {
  const auto quarters = [](std::size_t num_steps) {
    return statistics(plan_of_labels(std::vector<std::int16_t>(num_steps), 1))
        .buckets[0]
        .quarter_steps;
  };
  EXPECT_EQ(quarters(1), (std::array<std::uint64_t, 4>{1, 0, 0, 0}));
  EXPECT_EQ(quarters(2), (std::array<std::uint64_t, 4>{1, 0, 1, 0}));
  EXPECT_EQ(quarters(5), (std::array<std::uint64_t, 4>{2, 1, 1, 1}));
  EXPECT_EQ(quarters(8), (std::array<std::uint64_t, 4>{2, 2, 2, 2}));
}

TEST(StatsTest, DiscrepancyIsThatOfTheWorstPrefix) {
  EXPECT_EQ(statistics(plan_of_labels({0, 1, 0, 1}, 2)).prefix_discrepancy, 0.5);
  EXPECT_EQ(statistics(plan_of_labels({0, 0, 1, 1}, 2)).prefix_discrepancy, 1.0);
  EXPECT_EQ(statistics(plan_of_labels({0, 0, 0, 1}, 2)).prefix_discrepancy, 0.75);
  EXPECT_EQ(statistics(plan_of_labels({0, 0, 0, 0}, 2)).prefix_discrepancy, 0.0);
}

TEST(StatsTest, AWindowIsCrowdedByThreeStepsOfOneLabelAnywhereInIt) {
  // The last two steps are no whole window.
  const PlanStatistics found = statistics(plan_of_labels(
      {0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0}, 3));
  EXPECT_EQ(found.windows, 6);
  EXPECT_EQ(found.crowded_windows, 4);
}

TEST(StatsTest, CorrelationsOfEqualValuesAreNotNumbers) {
  for (std::int64_t divisor = 3; divisor < 100; ++divisor) {  // Most means are not exact doubles.
    SCOPED_TRACE(divisor);
    Plan plan = plan_of_labels({0, 1, 0, 1, 0, 1, 0}, 2);
    for (std::size_t i = 0; i < plan.tokens.size(); ++i) {
      plan.offsets[i + 1] = plan.offsets[i] + divisor * (1 + static_cast<std::int64_t>(i));
      plan.tokens[i] = 1 + i;
      plan.widths[i] = 7 + 1000 * plan.buckets[i];
    }
    EXPECT_TRUE(std::isnan(statistics(plan, 1).length_correlation));
    EXPECT_TRUE(std::isnan(statistics(plan, 1).width_correlation));
    plan.tokens[0] = 2;  // Only the first of each pair varies.
    EXPECT_TRUE(std::isnan(statistics(plan, 1).length_correlation));
    plan.tokens[0] = 1;
    plan.tokens[6] = 8;  // Only the second.
    EXPECT_TRUE(std::isnan(statistics(plan, 1).length_correlation));
  }
}

TEST(StatsTest, WidthsThatClimbInsideABucketShow) {
  Plan plan = plan_of_labels(std::vector<std::int16_t>(100), 1);
  for (std::size_t i = 0; i < 100; ++i) {
    plan.widths[i] = 1'000'000'000 + static_cast<std::int64_t>(i);
  }
  EXPECT_GT(statistics(plan).width_correlation, 0.95);
  for (std::size_t i = 0; i < 100; ++i) {
    plan.widths[i] = 1'000'000'000 + static_cast<std::int64_t>(i % 2);
  }
  EXPECT_NEAR(statistics(plan).width_correlation, -1, 1e-12);
}

TEST(StatsTest, ABatchIsLimitedByTheFirstRuleThatHolds) {
  Plan plan;
  plan.limits = {.token_budget = 100, .max_batch_size = 10, .batch_size_multiple = 4};
  plan.add(0, 10, 5, 50);    // As many as may be: the cap.
  plan.add(0, 10, 10, 100);  // The same, though the budget is full too.
  plan.add(0, 9, 10, 90);    // One more fits the budget, but not the longest width, 20: the budget.
  plan.add(0, 5, 17, 85);    // One more of its width would not fit.
  plan.add(0, 8, 5, 40);     // Four more would be above the cap: the multiple.
  plan.add(0, 4, 12, 48);    // Four more of the longest width would not fit: the multiple.
  plan.add(0, 3, 20, 60);    // One more fits: there was none.
  plan.add(0, 1, 101, 101);  // Too long, alone; its width says nothing of the others.
  const BucketStatistics found = statistics(plan).buckets[0];
  EXPECT_EQ(found.limited_by_max_batch_size, 2);
  EXPECT_EQ(found.limited_by_token_budget, 3);
  EXPECT_EQ(found.limited_by_batch_size_multiple, 2);
  EXPECT_EQ(found.limited_by_samples, 1);
}

TEST(StatsTest, ABatchThatFillsTheBudgetShowsHowLongTheNextSampleMayBe) {
  Plan plan;
  plan.limits.token_budget = 100;
  plan.add(0, 5, 20, 100);
  plan.add(0, 5, 16, 80);
  EXPECT_EQ(statistics(plan).buckets[0].limited_by_token_budget, 2);
}

TEST(StatsTest, SumsSaturateInsteadOfWrapping) {
  constexpr auto kWidest = std::numeric_limits<std::int64_t>::max();
  Plan plan;
  plan.limits.token_budget = static_cast<std::uint64_t>(kWidest);
  plan.add(0, 3, kWidest, kTop);
  plan.add(0, 1, kWidest, 1);
  const PlanStatistics found = statistics(plan);
  EXPECT_EQ(found.tokens, kTop);
  EXPECT_EQ(found.padded_tokens, kTop);
  EXPECT_EQ(found.buckets[0].limited_by_token_budget, 2);
  EXPECT_TRUE(std::isnan(found.width_correlation));
}

TEST(StatsTest, AStepHasTheLabelOfMostOfItsBatchesAndOfATieTheLonger) {
  EXPECT_EQ(label_of(std::vector<std::int16_t>{3}), 3);
  EXPECT_EQ(label_of(std::vector<std::int16_t>{5, 5, 5}), 5);
  EXPECT_EQ(label_of(std::vector<std::uint16_t>{9, 1, 4, 1}), 1);
  EXPECT_EQ(label_of(std::vector<std::uint16_t>{1, 40'000, 1, 40'000, 7}), 40'000);
  EXPECT_EQ(label_of(std::vector<std::int16_t>{8, 2, 6}), 8);
}

void expect_rejected(const std::string& message, const Plan& plan) {
  try {
    static_cast<void>(statistics(plan));
    FAIL() << "accepted, instead of: " << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), message);
  }
}

TEST(StatsTest, SaysWhichValueIsWrong) {
  const Plan right = plan_of_labels({0, 1, 1, 0}, 2);
  const auto with = [&](auto change) {
    Plan plan = right;
    change(plan);
    return plan;
  };
  expect_rejected("`offsets` must have 5 entries for 4 batches, but has 4.",
                  with([](Plan& plan) { plan.offsets.pop_back(); }));
  expect_rejected("`widths` must have 4 entries for 4 batches, but has 5.",
                  with([](Plan& plan) { plan.widths.push_back(1); }));
  expect_rejected("`tokens` must have 4 entries for 4 batches, but has 3.",
                  with([](Plan& plan) { plan.tokens.pop_back(); }));
  expect_rejected(
      "`num_replicas` must be at least 1 and divide the number of batches, 4, but is 3.",
      with([](Plan& plan) { plan.num_replicas = 3; }));
  expect_rejected(
      "`num_replicas` must be at least 1 and divide the number of batches, 4, but is 0.",
      with([](Plan& plan) { plan.num_replicas = 0; }));
  expect_rejected("The number of steps must be in [1, 2**32), but is 0.", Plan());
  expect_rejected("`offsets[3]` must be above offsets[2] = 4, but is 4.",
                  with([](Plan& plan) { plan.offsets[3] = 4; }));
  expect_rejected("`widths[1]` must be at least 1, but is 0.",
                  with([](Plan& plan) { plan.widths[1] = 0; }));
  expect_rejected("`buckets[2]` must be in [0, 2), but is 2.",
                  with([](Plan& plan) { plan.buckets[2] = 2; }));
  expect_rejected("`buckets[2]` must be in [0, 2), but is -1.",
                  with([](Plan& plan) { plan.buckets[2] = -1; }));
}

}  // namespace
}  // namespace evenstride
