// The orders `balanced` and `stratified` against their windows, bounds, and figures on `data/`.
#include "core/balanced.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "label_statistics.h"

namespace evenstride {
namespace {

using testing::Counts;
using testing::Labels;
using testing::seed_counts;

Labels balanced(const Counts& counts, Stream stream) {
  Watch watch;
  return balanced_order(counts, 1, stream, watch);
}

// Whether every step has a slot in [floor(i * T / n), ceil((i + 1) * T / n)), which is the bound.
::testing::AssertionResult keeps_every_window(const Labels& labels, const Counts& counts) {
  const std::uint64_t total = testing::sum(counts);
  if (testing::counts_of(labels, counts.size()) != counts) {
    return ::testing::AssertionFailure() << "wrong counts";
  }
  Counts next(counts.size());
  for (std::uint64_t t = 0; t < total; ++t) {
    const std::uint16_t k = labels[t];
    const std::uint64_t i = next[k]++;
    if (t < i * total / counts[k] || t * counts[k] >= (i + 1) * total) {
      return ::testing::AssertionFailure()
             << "step " << i << " of " << counts[k] << " of bucket " << k << " has slot " << t;
    }
  }
  return ::testing::AssertionSuccess();
}

// Whether r < 2 / (1 - q) for every run of r steps of a bucket, in whole numbers.
::testing::AssertionResult keeps_runs_short(const Labels& labels, const Counts& counts) {
  const std::uint64_t total = testing::sum(counts);
  std::uint64_t run = 0;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    run = t > 0 && labels[t] == labels[t - 1] ? run + 1 : 1;
    const std::uint64_t others = total - counts[labels[t]];
    if (others != 0 && run * others >= 2 * total) {
      return ::testing::AssertionFailure() << "a run of " << run << " ends at slot " << t;
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Balanced, EveryStepIsInItsWindowSoTheDiscrepancyIsBelowOneAndRunsAreShort) {
  Draws random(Stream(1));
  for (int trial = 0; trial < 10000; ++trial) {
    const Counts counts = testing::random_counts(random);
    const Labels labels = balanced(counts, Stream(random.next()));
    ASSERT_TRUE(keeps_every_window(labels, counts)) << "trial " << trial;
    ASSERT_TRUE(keeps_runs_short(labels, counts)) << "trial " << trial;
    if (trial % 10 == 0) {
      ASSERT_LT(testing::discrepancy(labels, counts), 1.0) << "trial " << trial;
    }
  }
}

TEST(Balanced, EverySmallCaseIsRight) {
  Draws random(Stream(2));
  for (std::uint64_t code = 1; code < 4096; ++code) {
    const Counts counts = {code % 8, code / 8 % 8, code / 64 % 8, code / 512};
    for (int trial = 0; trial < 4; ++trial) {
      ASSERT_TRUE(keeps_every_window(balanced(counts, Stream(random.next())), counts)) << code;
    }
  }
}

TEST(Balanced, WindowsLongerThanTheHorizonAreKeptToo) {
  Draws random(Stream(3));
  for (int trial = 0; trial < 50; ++trial) {
    Counts counts(300 + random.below(100));
    std::ranges::generate(counts, [&] { return random.below(12); });
    counts[7] = random.below(3000);
    ASSERT_TRUE(keeps_every_window(balanced(counts, Stream(random.next())), counts)) << trial;
  }
}

// Where no window near by is tight, the step with the earliest deadline comes early. At its
// deadline it must count once; counted twice, a prefix without slack passes for one with plenty.
TEST(Balanced, AStepThatComesEarlyCountsOnceAtItsDeadline) {
  Draws random(Stream(6));
  for (int trial = 0; trial < 300; ++trial) {
    Counts counts(50 + random.below(150), 1 + random.below(8));
    counts.insert(counts.end(), random.below(100), 1 + random.below(12));
    counts.push_back(random.below(200));
    ASSERT_TRUE(keeps_every_window(balanced(counts, Stream(random.next())), counts)) << trial;
  }
}

TEST(Balanced, OnTheSeedCountsNoBucketComesTwiceInARow) {
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Labels labels = balanced(seed_counts(), Stream::of(0, epoch));
    ASSERT_TRUE(keeps_every_window(labels, seed_counts()));
    EXPECT_EQ(testing::longest_run(labels), 1U);
    EXPECT_LT(testing::discrepancy(labels, seed_counts()), 1.0);
  }
}

TEST(Balanced, TwoEpochsAgreeInAThirdOfTheirSteps) {
  double sum = 0;
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    sum += testing::agreement(balanced(seed_counts(), Stream::of(0, epoch)),
                              balanced(seed_counts(), Stream::of(0, epoch + 1)));
  }
  EXPECT_NEAR(sum / 10, 0.330, 0.005);
}

TEST(Balanced, EveryBucketCanComeFirst) {
  Counts first(6);
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch) {
    ++first.at(balanced({2, 3, 5, 7, 8, 20}, Stream::of(0, epoch))[0]);
  }
  for (std::size_t k = 0; k < 6; ++k) {
    EXPECT_GT(first[k], 0U) << "bucket " << k;
  }
}

TEST(Balanced, ADominatingBucketStillMoves) {
  const Counts counts = {100, 900};
  double sum = 0;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Labels labels = balanced(counts, Stream::of(0, epoch));
    EXPECT_LT(testing::longest_run(labels), 20U);
    sum += testing::agreement(labels, balanced(counts, Stream::of(0, epoch + 1)));
  }
  EXPECT_NEAR(sum / 20, 0.845, 0.015);
}

TEST(Balanced, ABucketWithHalfOfTheStepsNeedNotAlternate) {
  EXPECT_EQ(testing::longest_run(balanced({100, 100}, Stream(0))), 2U);
  EXPECT_EQ(testing::longest_run(balanced({100, 50, 50}, Stream(0))), 2U);
}

TEST(Balanced, RepeatsAreRareWhereEveryShareIsBelowAHalf) {
  Draws random(Stream(4));
  std::uint64_t steps = 0;
  std::uint64_t repeats = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    const Counts counts = testing::random_counts(random);
    if (2 * std::ranges::max(counts) < testing::sum(counts)) {
      const Labels labels = balanced(counts, Stream(random.next()));
      steps += labels.size();
      repeats += labels.size() - testing::runs(labels).size();
    }
  }
  EXPECT_GT(steps, 1'000'000U);
  EXPECT_LT(repeats, steps / 10'000);
}

TEST(Stratified, TheBoundHoldsAtTheEndOfEveryGroup) {
  Draws random(Stream(5));
  for (int trial = 0; trial < 5000; ++trial) {
    const Counts counts = testing::random_counts(random);
    const std::uint64_t group_size = 2 + random.below(15);
    Watch watch;
    const Labels labels = balanced_order(counts, group_size, Stream(random.next()), watch);
    ASSERT_EQ(testing::counts_of(labels, counts.size()), counts);
    ASSERT_LT(testing::discrepancy(labels, counts, group_size), 1.0) << "trial " << trial;
  }
}

TEST(Stratified, GroupsOfFourSpanAsManyBucketsAsCanBeOnTheSeedCounts) {
  double sum = 0;
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    Watch watch;
    const Labels labels = balanced_order(seed_counts(), 4, Stream::of(0, epoch), watch);
    EXPECT_LT(testing::discrepancy(labels, seed_counts(), 4), 1.0);
    sum += testing::distinct_in_a_group(labels, 4);
    for (std::size_t t = 0; t + 4 <= labels.size(); t += 4) {
      const auto counts = testing::counts_of(std::span(labels).subspan(t, 4), 6);
      ASSERT_LE(std::ranges::max(counts), 2U) << "group at " << t;
    }
  }
  EXPECT_NEAR(sum / 10, 3.322, 0.0011);  // 3.323 is the sum of min(1, 4 * share).
}

TEST(Stratified, EveryPlaceInAGroupIsAsLikely) {
  Counts first(6);
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    Watch watch;
    const Labels labels = balanced_order(seed_counts(), 4, Stream::of(0, epoch), watch);
    for (std::size_t t = 0; t < labels.size(); t += 4) {
      ++first.at(labels[t]);
    }
  }
  const auto total = static_cast<double>(testing::sum(seed_counts()));
  for (std::size_t k = 0; k < 6; ++k) {
    EXPECT_NEAR(static_cast<double>(first[k]) / static_cast<double>(testing::sum(first)),
                static_cast<double>(seed_counts()[k]) / total, 0.005);
  }
}

TEST(Stratified, AGroupBeyondTheEpochIsAShuffleOfItAll) {
  Watch watch;
  const Labels labels = balanced_order(seed_counts(), ~std::uint64_t{0}, Stream::of(0, 0), watch);
  EXPECT_EQ(testing::counts_of(labels, 6), seed_counts());
  EXPECT_GT(testing::longest_run(labels), 4U);
}

}  // namespace
}  // namespace evenstride
