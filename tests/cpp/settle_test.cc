// How many batches each bucket makes: whole steps, within what the bucket can be filled into.
#include "core/settle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;
using testing::Values;

using Ranges = std::vector<BucketRange>;

std::uint64_t sum(const Values& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

struct Case {
  Ranges buckets;
  Values fewest;
  StepOptions options;
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
};

// Buckets may be empty, too small for a step, or of samples that must all be alone.
Case random_case(Random& random) {
  Case result;
  result.options.num_replicas = random.between(1, random.one_in(3) ? 40 : 8);
  const std::size_t num_buckets = random.between(1, 6);
  do {
    result.buckets.clear();
    result.fewest.clear();
    for (std::size_t k = 0; k < num_buckets; ++k) {
      const std::uint64_t samples = random.one_in(5) ? 0 : random.below(random.one_in(2) ? 200 : 9);
      const std::uint64_t size = random.between(1, 12);
      const std::uint64_t batches = (samples + size - 1) / size;
      result.buckets.push_back({.batches = batches, .samples = samples});
      result.fewest.push_back(batches - random.below(batches / 4 + 1));
    }
    result.batches = 0;
    result.samples = 0;
    for (const BucketRange& bucket : result.buckets) {
      result.batches += bucket.batches;
      result.samples += bucket.samples;
    }
  } while (result.samples == 0);
  return result;
}

bool has_multiple(std::uint64_t multiple, std::uint64_t least, std::uint64_t most) {
  return most / multiple * multiple >= least;
}

TEST(Settle, NothingIsRepeatedIfAndOnlyIfAMultipleLiesBetweenBatchesAndSamples) {
  Random random(1);
  int num_repeated = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const Case problem = random_case(random);
    const std::uint64_t num_replicas = problem.options.num_replicas;
    const Settlement settled = settle(problem.buckets, problem.options);
    ASSERT_EQ(sum(settled.batches) + settled.repeats, settled.steps * num_replicas) << trial;
    ASSERT_EQ(settled.batches.size(), problem.buckets.size());
    for (std::size_t k = 0; k < settled.batches.size(); ++k) {
      ASSERT_GE(settled.batches[k], problem.buckets[k].batches) << trial;
      ASSERT_LE(settled.batches[k], problem.buckets[k].samples) << trial;
    }
    ASSERT_EQ(settled.repeats == 0, has_multiple(num_replicas, problem.batches, problem.samples))
        << trial;
    ASSERT_LT(settled.repeats, num_replicas) << trial;
    num_repeated += settled.repeats > 0 ? 1 : 0;
  }
  EXPECT_GT(num_repeated, 500);
}

TEST(Settle, NoMoreThanOneStepABucketIsAdded) {
  Random random(2);
  for (int trial = 0; trial < 5000; ++trial) {
    const Case problem = random_case(random);
    const Settlement settled = settle(problem.buckets, problem.options);
    ASSERT_LE(settled.steps,
              problem.batches / problem.options.num_replicas + problem.buckets.size());
  }
}

TEST(Settle, OneReplicaChangesNothing) {
  Random random(3);
  for (int trial = 0; trial < 500; ++trial) {
    Case problem = random_case(random);
    problem.options.num_replicas = 1;
    const Settlement settled = settle(problem.buckets, problem.options);
    ASSERT_EQ(settled.steps, problem.batches);
    for (std::size_t k = 0; k < settled.batches.size(); ++k) {
      ASSERT_EQ(settled.batches[k], problem.buckets[k].batches);
    }
  }
}

TEST(Settle, ABucketIsRaisedToWholeSteps) {
  const Ranges buckets = {{10, 100}, {13, 100}, {16, 100}};
  const Settlement settled = settle(buckets, testing::ranks(8));
  EXPECT_EQ(settled.batches, (Values{16, 16, 16}));
  EXPECT_EQ(settled.steps, 6U);
}

TEST(Settle, ABucketThatWouldMoreThanDoubleHandsItsRestToTheNextShorterOne) {
  // 3 would have to become 8; they meet 7 more of the next, which keeps 13 and adds 1.
  const Settlement settled = settle(Ranges{{20, 100}, {3, 100}}, testing::ranks(8));
  EXPECT_EQ(settled.batches, (Values{21, 3}));
  EXPECT_EQ(settled.steps, 3U);
}

TEST(Settle, ABucketThatWouldJustDoubleIsCompleted) {
  const Settlement settled = settle(Ranges{{100, 200}, {4, 100}}, testing::ranks(8));
  EXPECT_EQ(settled.batches, (Values{104, 8}));
}

TEST(Settle, BatchesOfTheShortestBucketCompleteTheLastStep) {
  const Settlement settled = settle(Ranges{{3, 100}, {0, 0}}, testing::ranks(8));
  EXPECT_EQ(settled.batches, (Values{8, 0}));
  EXPECT_EQ(settled.repeats, 0U);
}

TEST(Settle, ASampleAloneIsRepeatedOnEveryRank) {
  const Settlement settled = settle(Ranges{{1, 1}}, testing::ranks(4));
  EXPECT_EQ(settled.steps, 1U);
  EXPECT_EQ(settled.repeats, 3U);
}

TEST(Settle, DropLastKeepsTheNaturalBatches) {
  Random random(4);
  for (int trial = 0; trial < 5000; ++trial) {
    Case problem = random_case(random);
    problem.options.drop_last = true;
    const std::uint64_t num_replicas = problem.options.num_replicas;
    if (problem.batches < num_replicas) {
      EXPECT_EQ(testing::message_of([&] { (void)settle(problem.buckets, problem.options); }),
                "`drop_last` must leave at least 1 step, but leaves 0: there are " +
                    std::to_string(problem.batches) +
                    " batches for num_replicas = " + std::to_string(num_replicas) + ".");
      continue;
    }
    const Settlement settled = settle(problem.buckets, problem.options);
    ASSERT_EQ(settled.steps, problem.batches / num_replicas);
    ASSERT_EQ(settled.repeats, 0U);
    ASSERT_EQ(sum(settled.batches), problem.batches);
  }
}

TEST(SettleOn, EveryNumberUpToTheNaturalOneAtLeastIsMetAndNoOther) {
  Random random(5);
  for (int trial = 0; trial < 1500; ++trial) {
    const Case problem = random_case(random);
    const std::uint64_t num_replicas = problem.options.num_replicas;
    const std::uint64_t least = (sum(problem.fewest) + num_replicas - 1) / num_replicas;
    const bool is_exact = has_multiple(num_replicas, sum(problem.fewest), problem.samples);
    const Settlement natural = settle(problem.buckets, problem.options);
    const std::uint64_t most_exact = is_exact ? problem.samples / num_replicas : least;
    const std::uint64_t most = std::max(most_exact, natural.steps);
    const auto settle_on_steps = [&](std::uint64_t steps) {
      return settle_on(steps, problem.buckets, problem.fewest, problem.options);
    };
    for (std::uint64_t steps = least; steps <= most; ++steps) {
      const Settlement settled = settle_on_steps(steps);
      ASSERT_EQ(settled.steps, steps);
      ASSERT_EQ(sum(settled.batches) + settled.repeats, steps * num_replicas) << trial;
      ASSERT_EQ(settled.repeats > 0, !is_exact || steps > most_exact) << trial;
      ASSERT_LT(settled.repeats, num_replicas);
      for (std::size_t k = 0; k < settled.batches.size(); ++k) {
        ASSERT_GE(settled.batches[k], problem.fewest[k]) << trial;
        ASSERT_LE(settled.batches[k], problem.buckets[k].samples) << trial;
      }
    }
    EXPECT_EQ(settle_on_steps(natural.steps).batches, natural.batches);
    EXPECT_EQ(settle_on_steps(natural.steps).repeats, natural.repeats);
    for (const std::uint64_t steps : {least - 1, most + 1, std::uint64_t{1} << 62}) {
      EXPECT_EQ(testing::message_of([&] { (void)settle_on_steps(steps); }),
                "`steps_per_epoch` must be in [" + std::to_string(least) + ", " +
                    std::to_string(most) + "], but is " + std::to_string(steps) + ".");
    }
  }
}

TEST(SettleOn, StepsAreSpreadInProportion) {
  const Ranges buckets = {{100, 100'000}, {300, 100'000}, {600, 100'000}};
  const Values fewest = {50, 200, 500};
  const Settlement more = settle_on(500, buckets, fewest, testing::ranks(4));
  EXPECT_EQ(more.batches, (Values{200, 600, 1200}));
  const Settlement one = settle_on(2000, buckets, fewest, {});
  EXPECT_EQ(one.batches, (Values{200, 600, 1200}));
}

TEST(SettleOn, NumbersNearTheTopDoNotOverflow) {
  const std::uint64_t huge = std::uint64_t{1} << 61;
  const Ranges buckets = {{huge / 2, huge}, {huge / 4, huge}};
  const Settlement settled = settle_on(huge / 8, buckets, Values{1, 1}, testing::ranks(8));
  EXPECT_EQ(sum(settled.batches), huge);
  EXPECT_NEAR(static_cast<double>(settled.batches[0]),
              2.0 * static_cast<double>(settled.batches[1]), 100);
}

TEST(SettleOn, DropLastRepeatsNothingAndIsLeftWithLessThanAStepOnlyWhereItMust) {
  Random random(6);
  for (int trial = 0; trial < 1500; ++trial) {
    Case problem = random_case(random);
    problem.options.drop_last = true;
    const std::uint64_t num_replicas = problem.options.num_replicas;
    const std::uint64_t fewest = sum(problem.fewest);
    const std::uint64_t least = std::max<std::uint64_t>(1, fewest / num_replicas);
    const std::uint64_t most = problem.samples / num_replicas;
    const auto message = [&](std::uint64_t steps) {
      return testing::message_of(
          [&] { (void)settle_on(steps, problem.buckets, problem.fewest, problem.options); });
    };
    if (most == 0) {
      EXPECT_EQ(message(1), "`drop_last` must leave at least 1 step, but leaves 0: there are " +
                                std::to_string(problem.samples) + " samples for num_replicas = " +
                                std::to_string(num_replicas) + ".");
      continue;
    }
    for (std::uint64_t steps = least; steps <= most; ++steps) {
      const Settlement settled = settle_on(steps, problem.buckets, problem.fewest, problem.options);
      ASSERT_EQ(settled.steps, steps);
      ASSERT_EQ(settled.repeats, 0U);
      ASSERT_EQ(sum(settled.batches), std::max(fewest, steps * num_replicas)) << trial;
      ASSERT_LT(sum(settled.batches), (steps + 1) * num_replicas) << trial;
      for (std::size_t k = 0; k < settled.batches.size(); ++k) {
        ASSERT_GE(settled.batches[k], problem.fewest[k]) << trial;
        ASSERT_LE(settled.batches[k], problem.buckets[k].samples) << trial;
      }
    }
    for (const std::uint64_t steps : {least - 1, most + 1}) {
      EXPECT_EQ(message(steps), "`steps_per_epoch` must be in [" + std::to_string(least) + ", " +
                                    std::to_string(most) + "], but is " + std::to_string(steps) +
                                    ".");
    }
  }
}

}  // namespace
}  // namespace evenstride
