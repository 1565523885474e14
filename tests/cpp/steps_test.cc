// Steps: every batch once, near-equal cost on all ranks, and few steps of several buckets.
#include "core/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "composed.h"
#include "core/complete.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Batches;
using testing::Composed;
using testing::Problem;
using testing::Random;
using testing::Values;

// Buckets of random samples, filled as `settled` says, and the steps that they form.
template <class Entry = PackedEntry>
struct Formed {
  Composed<Entry> composed;
  StepOptions options;
  Settlement settled;
  std::vector<Batches> filled;  // What each bucket was filled into, samples that are alone last.
  Steps<Entry> steps;

  Formed(const Problem& problem, const StepOptions& step_options, Stream stream,
         int num_threads = 1)
      : composed(problem, num_threads), options(step_options) {
    settled = settle(composed.ranges(), options);
    for (std::size_t k = 0; k < composed.buckets.size(); ++k) {
      FilledBucket<Entry>& bucket = composed.buckets[k];
      complete(bucket, settled.batches[k] - bucket.alone.size(), 8 * options.num_replicas,
               testing::view(problem.lengths), problem.options.limits);
      Batches& batches = filled.emplace_back(testing::indices_of(bucket.batches));
      const Batches alone = testing::indices_of(bucket.alone);
      batches.insert(batches.end(), alone.begin(), alone.end());
    }
    steps = form_steps(std::span(composed.buckets), settled, options,
                       problem.options.limits.pad_to_multiple_of, stream, composed.team());
  }

  [[nodiscard]] std::size_t num_replicas() const {
    return static_cast<std::size_t>(options.num_replicas);
  }
  [[nodiscard]] std::span<const std::uint16_t> buckets_of(std::size_t step) const {
    return std::span(steps.buckets).subspan(step * num_replicas(), num_replicas());
  }
  [[nodiscard]] bool is_mixed(std::size_t step) const {
    const auto buckets = buckets_of(step);
    return std::ranges::any_of(buckets, [&](std::uint16_t bucket) { return bucket != buckets[0]; });
  }
};

std::optional<Formed<>> form(const Problem& problem, const StepOptions& options, Stream stream) {
  try {
    return std::optional<Formed<>>(std::in_place, problem, options, stream);
  } catch (const std::invalid_argument&) {  // With drop_last there may be no step.
    return std::nullopt;
  }
}

StepOptions random_steps(Random& random) {
  return testing::ranks(random.between(1, random.one_in(3) ? 20 : 4), random.one_in(2));
}

TEST(Steps, EachBatchIsInOneStepWithItsBucketButForThoseListed) {
  Random random(1);
  for (int trial = 0; trial < 500; ++trial) {
    const Problem problem = testing::random_problem(random, 400);
    const auto formed = form(problem, random_steps(random), Stream(random.next()));
    if (!formed) {
      continue;
    }
    const auto& steps = formed->steps;
    const Batches batches = testing::indices_of(steps.batches);
    ASSERT_EQ(batches.size(), formed->settled.steps * formed->num_replicas());
    ASSERT_EQ(steps.buckets.size(), batches.size());
    std::map<Values, std::size_t> bucket_of;
    Values samples;
    for (std::size_t k = 0; k < formed->filled.size(); ++k) {
      for (const Values& batch : formed->filled[k]) {
        bucket_of[batch] = k;
        samples.insert(samples.end(), batch.begin(), batch.end());
      }
    }
    for (std::size_t i = 0; i < batches.size(); ++i) {
      ASSERT_TRUE(bucket_of.contains(batches[i]));
      ASSERT_EQ(bucket_of[batches[i]], steps.buckets[i]);
    }
    Values used = testing::joined(batches);
    used.insert(used.end(), steps.dropped.begin(), steps.dropped.end());
    samples.insert(samples.end(), steps.repeats.begin(), steps.repeats.end());
    ASSERT_EQ(testing::sorted(used), testing::sorted(samples)) << "trial " << trial;
  }
}

TEST(Steps, RepeatsAndDroppedBatchesAreFewerThanTheReplicas) {
  Random random(2);
  int num_repeating = 0;
  int num_dropping = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const Problem problem = testing::random_problem(random, random.one_in(2) ? 400 : 10);
    const auto formed = form(problem, random_steps(random), Stream(random.next()));
    if (!formed) {
      continue;
    }
    std::size_t filled = 0;
    for (const Batches& batches : formed->filled) {
      filled += batches.size();
    }
    const std::size_t used = formed->steps.batches.size();
    ASSERT_LT(used, filled + formed->num_replicas());
    ASSERT_LT(filled, used + formed->num_replicas());
    ASSERT_EQ(formed->steps.repeats.empty(), used <= filled);
    ASSERT_EQ(formed->steps.dropped.empty(), used >= filled);
    ASSERT_TRUE(formed->options.drop_last || used >= filled);
    ASSERT_TRUE(!formed->options.drop_last || used <= filled);
    num_repeating += used > filled ? 1 : 0;
    num_dropping += used < filled ? 1 : 0;
  }
  EXPECT_GT(num_repeating, 10);
  EXPECT_GT(num_dropping, 10);
}

TEST(Steps, ABatchIsRepeatedTwiceOnlyWhereThereAreTooFew) {
  Random random(3);
  for (int trial = 0; trial < 300; ++trial) {
    Problem problem = testing::random_problem(random, 30);
    problem.options.limits.max_batch_size = 1;
    const std::uint64_t num_replicas = random.between(2, 6);
    const Formed<> formed(problem, testing::ranks(num_replicas), Stream(random.next()));
    const std::uint64_t samples = formed.composed.found().admitted.samples;
    const Values& repeats = formed.steps.repeats;
    const std::set<std::uint64_t> different(repeats.begin(), repeats.end());
    if (samples >= 2 * num_replicas) {
      ASSERT_EQ(different.size(), repeats.size());
    }
  }
}

TEST(Steps, AtMostOneStepABucketIsMixed) {
  Random random(4);
  for (int trial = 0; trial < 500; ++trial) {
    const Problem problem = testing::random_problem(random, 400);
    const auto formed = form(problem, random_steps(random), Stream(random.next()));
    if (!formed) {
      continue;
    }
    std::size_t mixed = 0;
    for (std::size_t step = 0; step < formed->settled.steps; ++step) {
      mixed += formed->is_mixed(step) ? 1U : 0U;
    }
    ASSERT_LE(mixed, formed->filled.size()) << "trial " << trial;
  }
}

TEST(Steps, BatchesOfNearEqualCostFormAStep) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const Problem problem = testing::random_problem(random, 400);
    const auto formed = form(problem, random_steps(random), Stream(random.next()));
    if (!formed) {
      continue;
    }
    struct Costs {
      std::uint64_t least;
      std::uint64_t most;
    };
    std::map<std::uint16_t, std::vector<Costs>> costs;
    for (std::size_t step = 0; step < formed->settled.steps; ++step) {
      if (formed->is_mixed(step)) {
        continue;
      }
      Costs own = {.least = kUnlimited, .most = 0};
      for (std::size_t i = 0; i < formed->num_replicas(); ++i) {
        const auto& batch = formed->steps.batches[step * formed->num_replicas() + i];
        const auto cost = static_cast<std::uint64_t>(
            testing::padded_tokens(batch.count, batch.longest, problem.options.limits));
        own = {.least = std::min(own.least, cost), .most = std::max(own.most, cost)};
      }
      costs[formed->buckets_of(step)[0]].push_back(own);
    }
    if (!formed->steps.repeats.empty()) {
      continue;  // A last step of one bucket need not be in line with the others.
    }
    for (auto& [bucket, of_steps] : costs) {
      std::ranges::sort(of_steps, {},
                        [](const Costs& own) { return std::pair(own.most, own.least); });
      for (std::size_t i = 1; i < of_steps.size(); ++i) {
        ASSERT_GE(of_steps[i].least, of_steps[i - 1].most)
            << "trial " << trial << ", bucket " << bucket;
      }
    }
  }
}

TEST(Steps, StepsOfOneLabelStandTogether) {
  Random random(6);
  for (int trial = 0; trial < 300; ++trial) {
    const Problem problem = testing::random_problem(random, 400);
    const auto formed = form(problem, random_steps(random), Stream(random.next()));
    if (!formed) {
      continue;
    }
    std::size_t step = 0;
    ASSERT_EQ(formed->steps.steps_per_bucket.size(), formed->filled.size());
    for (std::size_t k = 0; k < formed->filled.size(); ++k) {
      for (std::uint64_t i = 0; i < formed->steps.steps_per_bucket[k]; ++i, ++step) {
        // The bucket of most of its batches, the longer one of a tie.
        std::vector<std::size_t> votes(formed->filled.size());
        for (const std::uint16_t bucket : formed->buckets_of(step)) {
          ++votes.at(bucket);
        }
        const auto most = std::max_element(votes.rbegin(), votes.rend());
        ASSERT_EQ(static_cast<std::size_t>(votes.rend() - most) - 1, k) << "trial " << trial;
      }
    }
    ASSERT_EQ(step, formed->settled.steps);
  }
}

TEST(Steps, OneReplicaMixesNothing) {
  Random random(7);
  for (int trial = 0; trial < 100; ++trial) {
    const Problem problem = testing::random_problem(random, 200);
    const Formed<> formed(problem, {}, Stream(random.next()));
    for (std::size_t k = 0; k < formed.filled.size(); ++k) {
      ASSERT_EQ(formed.steps.steps_per_bucket[k], formed.filled[k].size());
    }
    ASSERT_TRUE(formed.steps.repeats.empty());
  }
}

TEST(Steps, AreTheSameForEveryNumberOfThreadsAndTypeOfEntry) {
  Random random(8);
  for (int trial = 0; trial < 60; ++trial) {
    const Problem problem = testing::random_problem(random, 1000);
    const StepOptions options = testing::ranks(random.between(1, 5));
    const Stream stream(random.next());
    const Formed<> one(problem, options, stream);
    const Formed<WideEntry> three(problem, options, stream, 3);
    ASSERT_EQ(testing::indices_of(one.steps.batches), testing::indices_of(three.steps.batches));
    ASSERT_EQ(one.steps.buckets, three.steps.buckets);
    ASSERT_EQ(one.steps.repeats, three.steps.repeats);
  }
}

Problem two_buckets() {
  Random random(9);
  Problem problem;
  problem.lengths.resize(300);
  std::ranges::generate(problem.lengths, [&] { return random.between(1, 100); });
  problem.edges = {50};
  problem.options.limits = {.token_budget = 1000};
  return problem;
}

// Returns nothing where two are the most expensive.
std::optional<std::size_t> place_of_most_expensive(std::span<const Batch<PackedEntry>> batches) {
  std::optional<std::size_t> place;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::uint64_t cost = std::uint64_t{batches[i].count} * batches[i].longest;
    if (cost >= most) {
      place = cost > most ? std::optional(i) : std::nullopt;
      most = cost;
    }
  }
  return place;
}

TEST(Steps, EveryRankGetsTheMostExpensiveBatchAsOften) {
  const Problem problem = two_buckets();
  Values counts(4);
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Formed<> formed(problem, testing::ranks(4), Stream(epoch));
    for (std::size_t step = 0; step < formed.settled.steps; ++step) {
      const auto own = std::span(formed.steps.batches).subspan(4 * step, 4);
      if (const auto place = place_of_most_expensive(own)) {
        ++counts[*place];
      }
    }
  }
  EXPECT_LT(testing::unevenness(counts), 4);
}

TEST(Steps, EveryPlaceInABucketIsAsLikelyForAStep) {
  const Problem problem = two_buckets();
  Values counts;
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch) {
    const Formed<> formed(problem, testing::ranks(2), Stream(epoch));
    const auto own = std::span(formed.steps.batches).first(2 * formed.steps.steps_per_bucket[0]);
    counts.resize(own.size() / 2);
    if (const auto place = place_of_most_expensive(own)) {
      ++counts[*place / 2];
    }
  }
  ASSERT_GT(counts.size(), 3U);
  EXPECT_LT(testing::unevenness(counts), 4);
}

TEST(Steps, OverTheEpochsDropLastLosesNoSampleForGood) {
  const Problem problem = two_buckets();
  Values seen(problem.lengths.size());
  std::uint64_t dropped = 0;
  for (std::uint64_t epoch = 0; epoch < 60; ++epoch) {
    const Formed<> formed(problem, testing::ranks(7, true), Stream(epoch));
    dropped += formed.steps.dropped.size();
    for (const std::uint64_t index : testing::joined(testing::indices_of(formed.steps.batches))) {
      ++seen[index];
    }
  }
  EXPECT_GT(dropped, 0U);
  EXPECT_GT(std::ranges::min(seen), 20U);
}

// 22 short and 21 long samples, each a batch: rests of 6 and 5, of which 3 are dropped.
TEST(Steps, DropLastDropsEveryBatchOfTheRestsAsOften) {
  Problem problem = two_buckets();
  problem.options.limits.max_batch_size = 1;
  problem.lengths.assign(22, 10);
  problem.lengths.insert(problem.lengths.end(), 21, 90);
  Values dropped(problem.lengths.size());
  constexpr int kEpochs = 4000;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Formed<> formed(problem, testing::ranks(8, true), Stream(epoch));
    ASSERT_EQ(formed.steps.dropped.size(), 3U);
    for (const std::uint64_t index : formed.steps.dropped) {
      ++dropped[index];
    }
  }
  const Values short_ones(dropped.begin(), dropped.begin() + 22);
  const Values long_ones(dropped.begin() + 22, dropped.end());
  EXPECT_LT(testing::unevenness(short_ones), 4);
  EXPECT_LT(testing::unevenness(long_ones), 4);
  const auto dropped_short = std::accumulate(short_ones.begin(), short_ones.end(), 0.0);
  EXPECT_NEAR(dropped_short, kEpochs * 3 * 6.0 / 11, 250);  // Five standard deviations.
}

}  // namespace
}  // namespace evenstride
