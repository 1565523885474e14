// The order `mixed`: optimizer steps that are uniform draws over all lengths.
#include "core/mixed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "composed.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Batches;
using testing::Problem;
using testing::Random;
using testing::Values;

// The epochs of some samples.
template <class Entry = PackedEntry>
class Epochs {
 public:
  Epochs(const Problem& problem, const StepOptions& steps, std::uint64_t accumulation_steps,
         int num_threads = 1)
      : problem_(problem),
        options_{problem.options.limits, steps, accumulation_steps},
        classes_(problem_.classes()),
        team_(num_threads),
        found_(survey(testing::view(problem_.lengths), classes_, options_.limits,
                      problem_.admission, team_)) {}

  [[nodiscard]] Settlement settle(std::uint64_t epoch = 0) { return draw(epoch)->settle(); }

  // The batches refer to this epoch, until the next one is formed.
  [[nodiscard]] Steps<Entry> form(std::uint64_t epoch, const Settlement& settlement) {
    drawn_ = draw(epoch);
    return drawn_->form(settlement, team_);
  }

  [[nodiscard]] std::uint64_t samples() const { return found_.admitted.samples; }
  [[nodiscard]] const Classes& classes() const { return classes_; }

 private:
  [[nodiscard]] std::unique_ptr<MixedEpoch<Entry>> draw(std::uint64_t epoch) {
    return std::make_unique<MixedEpoch<Entry>>(testing::view(problem_.lengths), classes_, found_,
                                               options_, Stream::of(1, epoch), workspace_, team_);
  }

  Problem problem_;
  MixedOptions options_;
  Classes classes_;
  Team team_;
  Survey found_;
  Workspace workspace_;
  std::unique_ptr<MixedEpoch<Entry>> drawn_;
};

// Returns what is wrong with an epoch, or nothing.
template <class Entry>
std::string fault_of(const Problem& problem, const StepOptions& options, const Settlement& settled,
                     const Steps<Entry>& steps, const Classes& classes) {
  const Batches batches = testing::indices_of(steps.batches);
  if (batches.size() != settled.steps * options.num_replicas) {
    return "wrong number of steps";
  }
  Values expected;
  for (std::size_t i = 0; i < problem.lengths.size(); ++i) {
    if (classes(problem.lengths[i]) <= classes.alone()) {
      expected.push_back(i);
    }
  }
  expected.insert(expected.end(), steps.repeats.begin(), steps.repeats.end());
  Values used = testing::joined(batches);
  used.insert(used.end(), steps.dropped.begin(), steps.dropped.end());
  if (testing::sorted(used) != testing::sorted(expected)) {
    return "samples were lost or repeated";
  }
  if (!testing::keep_limits(batches, problem.lengths, problem.options.limits)) {
    return "a batch is above the limits";
  }
  if (!steps.dropped.empty() && !options.drop_last) {
    return "samples were dropped";
  }
  if (!steps.repeats.empty() && settled.repeats == 0) {
    return "repeats that were not settled";
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::uint64_t longest = testing::longest_of(batches[i], problem.lengths);
    const bool is_alone = longest >= problem.options.limits.admitted_end;
    const std::size_t bucket = is_alone ? classes.num_buckets() - 1 : classes.bucket_of(longest);
    if (steps.buckets[i] != bucket) {
      return "a batch has the wrong bucket";
    }
  }
  return "";
}

TEST(Mixed, EveryEpochHasTheSettledStepsAndEachSampleOnce) {
  Random random(1);
  for (int trial = 0; trial < 400; ++trial) {
    const Problem problem = testing::random_problem(random, random.one_in(3) ? 12 : 300);
    const StepOptions options = testing::ranks(random.between(1, 5), random.one_in(3));
    Epochs<> epochs(problem, options, random.between(1, 4));
    std::optional<Settlement> settled;
    try {
      settled = epochs.settle();
    } catch (const std::invalid_argument& error) {
      ASSERT_TRUE(options.drop_last) << error.what();
      continue;
    }
    ASSERT_EQ(settled->batches.size(), 1U);
    ASSERT_LT(settled->repeats, options.num_replicas);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      const auto steps = epochs.form(epoch, *settled);
      ASSERT_EQ(fault_of(problem, options, *settled, steps, epochs.classes()), "")
          << "trial " << trial << ", epoch " << epoch;
    }
  }
}

TEST(Mixed, NothingIsRepeatedOnceThereAreSamplesForWholeSteps) {
  Random random(2);
  for (int trial = 0; trial < 400; ++trial) {
    const Problem problem = testing::random_problem(random, 60);
    const std::uint64_t num_replicas = random.between(1, 8);
    Epochs<> epochs(problem, testing::ranks(num_replicas), random.between(1, 3));
    const Settlement settled = epochs.settle();
    if (settled.repeats > 0) {
      // No more steps than that could be had without.
      ASSERT_GT(settled.steps * num_replicas, epochs.samples());
      ASSERT_LT((settled.steps - 1) * num_replicas, epochs.samples());
    }
  }
}

Values admitted_lengths(const Problem& problem) {
  const Classes classes = problem.classes();
  Values lengths;
  std::ranges::copy_if(problem.lengths, std::back_inserter(lengths),
                       [&](std::uint64_t length) { return classes(length) <= classes.alone(); });
  return lengths;
}

std::uint64_t fewest_of(Values lengths, const FillLimits& limits) {
  std::ranges::sort(lengths);
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  for (const std::uint64_t length : lengths) {
    samples = samples > 0 && testing::is_allowed(samples + 1, length, limits) ? samples + 1 : 1;
    batches += samples == 1 ? 1 : 0;
  }
  return batches;
}

TEST(Mixed, EveryNumberOfStepsInTheRangeIsMetInEveryEpoch) {
  Random random(3);
  for (int trial = 0; trial < 80; ++trial) {
    Problem problem = testing::random_problem(random, 80);
    problem.admission.too_long = TooLong::kDrop;
    const std::uint64_t num_replicas = random.between(1, 3);
    const std::uint64_t accumulation_steps = random.between(1, 3);
    const Values admitted = admitted_lengths(problem);
    const std::uint64_t fewest = fewest_of(admitted, problem.options.limits);
    const std::uint64_t least = (fewest + num_replicas - 1) / num_replicas;
    const std::uint64_t most = std::max<std::uint64_t>(least, admitted.size() / num_replicas);
    Epochs<> natural(problem, testing::ranks(num_replicas), accumulation_steps);
    const std::uint64_t natural_steps = natural.settle().steps;
    for (std::uint64_t steps = 1; steps <= most + 1; ++steps) {
      const StepOptions options = {.num_replicas = num_replicas, .steps_per_epoch = steps};
      Epochs<> epochs(problem, options, accumulation_steps);
      if (steps % accumulation_steps != 0 && steps != natural_steps) {
        ASSERT_EQ(testing::message_of([&] { (void)epochs.settle(); }),
                  "`steps_per_epoch` must be a multiple of accumulation_steps = " +
                      std::to_string(accumulation_steps) + " for order='mixed', but is " +
                      std::to_string(steps) + ".");
        continue;
      }
      if ((steps < least || steps > most) && steps != natural_steps) {
        ASSERT_EQ(testing::message_of([&] { (void)epochs.settle(); }),
                  "`steps_per_epoch` must be in [" + std::to_string(least) + ", " +
                      std::to_string(most) + "], but is " + std::to_string(steps) + ".");
        continue;
      }
      const Settlement settled = epochs.settle();
      ASSERT_EQ(settled.steps, steps);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        ASSERT_EQ(
            fault_of(problem, options, settled, epochs.form(epoch, settled), epochs.classes()), "")
            << "trial " << trial << ", steps " << steps << ", epoch " << epoch;
      }
    }
  }
}

TEST(Mixed, TheNaturalNumberOfStepsCanBeAskedFor) {
  Random random(7);
  for (int trial = 0; trial < 500; ++trial) {
    Problem problem;
    problem.options.limits = {.token_budget = 9};
    problem.lengths.resize(random.between(1, 15));
    std::ranges::generate(problem.lengths, [&] { return random.one_in(3) ? 1 : 9; });
    StepOptions options = testing::ranks(random.between(1, 3));
    const std::uint64_t accumulation_steps = random.between(1, 3);
    const Settlement natural = Epochs<>(problem, options, accumulation_steps).settle();
    options.steps_per_epoch = natural.steps;
    Epochs<> epochs(problem, options, accumulation_steps);
    Settlement settled;
    ASSERT_NO_THROW(settled = epochs.settle()) << "trial " << trial;
    ASSERT_EQ(settled.steps, natural.steps) << "trial " << trial;
    ASSERT_EQ(fault_of(problem, options, settled, epochs.form(1, settled), epochs.classes()), "");
  }
}

TEST(Mixed, IsTheSameForEveryNumberOfThreadsAndTypeOfEntry) {
  Random random(4);
  for (int trial = 0; trial < 20; ++trial) {
    const Problem problem = testing::random_problem(random, trial < 18 ? 500 : 60'000);
    const StepOptions options = testing::ranks(random.between(1, 4));
    Epochs<> one(problem, options, 2);
    const Settlement settled = one.settle();
    const auto expected = one.form(3, settled);
    for (const int num_threads : {2, 3}) {
      Epochs<WideEntry> other(problem, options, 2, num_threads);
      ASSERT_EQ(other.settle().steps, settled.steps);
      const auto steps = other.form(3, settled);
      ASSERT_EQ(testing::indices_of(steps.batches), testing::indices_of(expected.batches));
      ASSERT_EQ(steps.buckets, expected.buckets);
    }
  }
}

Problem spread_lengths(std::size_t size) {
  Random random(5);
  Problem problem;
  problem.lengths.resize(size);
  std::ranges::generate(problem.lengths, [&] { return random.between(1, 100); });
  problem.edges = {30, 60};
  problem.options.limits = {.token_budget = 1000};
  return problem;
}

// Epochs long enough that no optimizer step passes samples on.
TEST(Mixed, EverySampleIsInEveryOptimizerStepAsOften) {
  const Problem problem = spread_lengths(600);
  const StepOptions options = {.num_replicas = 2, .steps_per_epoch = 30};
  Epochs<> epochs(problem, options, 2);
  const Settlement settled = epochs.settle();
  Values in_first(problem.lengths.size());
  Values in_last(problem.lengths.size());
  for (std::uint64_t epoch = 0; epoch < 3000; ++epoch) {
    const Batches batches = testing::indices_of(epochs.form(epoch, settled).batches);
    for (std::size_t i = 0; i < 4; ++i) {
      for (const std::uint64_t index : batches[i]) {
        ++in_first[index];
      }
      for (const std::uint64_t index : batches[batches.size() - 1 - i]) {
        ++in_last[index];
      }
    }
  }
  // Each holds 40 of 600 samples: draws without replacement are a little more even than with.
  EXPECT_LT(std::abs(testing::unevenness(in_first)), 4);
  EXPECT_LT(std::abs(testing::unevenness(in_last)), 4);
}

TEST(Mixed, TheMeanLengthOfOptimizerStepsDoesNotDriftInTheNaturalNumber) {
  const Problem problem = spread_lengths(6000);
  Epochs<> epochs(problem, testing::ranks(2), 4);
  const Settlement settled = epochs.settle();
  double mean = 0;
  for (const std::uint64_t length : problem.lengths) {
    mean += static_cast<double>(length) / static_cast<double>(problem.lengths.size());
  }
  const std::size_t num_groups = settled.steps / 4;
  std::vector<double> tokens(num_groups);
  std::vector<double> samples(num_groups);
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const Batches batches = testing::indices_of(epochs.form(epoch, settled).batches);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      for (const std::uint64_t index : batches[i]) {
        tokens[i / 8] += static_cast<double>(problem.lengths[index]);
        samples[i / 8] += 1;
      }
    }
  }
  // Lengths have a deviation of 29, and each group holds about 150 samples in each of 200 epochs.
  for (std::size_t group = 0; group < num_groups; ++group) {
    EXPECT_NEAR(tokens[group] / samples[group], mean, 1.0) << group;
  }
}

TEST(Mixed, BatchesOfNearEqualCostFormAStep) {
  const Problem problem = spread_lengths(6000);
  Epochs<> epochs(problem, testing::ranks(4), 8);
  const auto steps = epochs.form(1, epochs.settle());
  double worst = 0;
  for (std::size_t step = 0; step < steps.batches.size() / 4; ++step) {
    double most = 0;
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto& batch = steps.batches[4 * step + i];
      const double cost = static_cast<double>(batch.count) * batch.longest;
      most = std::max(most, cost);
      sum += cost;
    }
    worst = std::max(worst, 4 * most / sum);
  }
  EXPECT_LT(worst, 1.7);
}

TEST(Mixed, MoreBatchesAnOptimizerStepPadLess) {
  const auto efficiency = [](std::uint64_t accumulation_steps) {
    const Problem problem = spread_lengths(20'000);
    Epochs<> epochs(problem, {}, accumulation_steps);
    double padded = 0;
    for (const auto& batch : epochs.form(0, epochs.settle()).batches) {
      padded += static_cast<double>(batch.count) * batch.longest;
    }
    double tokens = 0;
    for (const std::uint64_t length : problem.lengths) {
      tokens += static_cast<double>(length);
    }
    return tokens / padded;
  };
  EXPECT_GT(efficiency(16), efficiency(4) + 0.03);
  EXPECT_GT(efficiency(64), 0.95);
}

TEST(Mixed, NaturalStepsLeaveOtherEpochsRoom) {
  const Problem problem = spread_lengths(20'000);
  Epochs<> epochs(problem, testing::ranks(2), 2);
  const Settlement settled = epochs.settle();
  EXPECT_EQ(settled.steps % 2, 0U);
  for (std::uint64_t epoch = 1; epoch < 10; ++epoch) {
    const Settlement own = epochs.settle(epoch);
    EXPECT_NEAR(static_cast<double>(own.steps), static_cast<double>(settled.steps),
                0.01 * static_cast<double>(settled.steps) + 2);
  }
}

TEST(Mixed, SamplesThatAreAloneHaveABatchEachInTheLongestBucket) {
  Random random(6);
  for (int trial = 0; trial < 50; ++trial) {
    Problem problem = spread_lengths(random.between(50, 300));
    problem.admission = {.max_length = random.between(70, 95), .too_long = TooLong::kAlone};
    problem.limit_admission();
    Epochs<> epochs(problem, testing::ranks(random.between(1, 3)), 2);
    const auto steps = epochs.form(0, epochs.settle());
    const Batches batches = testing::indices_of(steps.batches);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (testing::longest_of(batches[i], problem.lengths) > problem.admission.max_length) {
        ASSERT_EQ(batches[i].size(), 1U) << "trial " << trial;
        ASSERT_EQ(steps.buckets[i], 2U);
      }
    }
  }
}

TEST(Mixed, DropLastWithoutAStepIsAnError) {
  Problem problem;
  problem.lengths = {5, 5, 5};
  problem.options.limits = {.token_budget = 5};
  Epochs<> epochs(problem, testing::ranks(4, true), 2);
  EXPECT_EQ(testing::message_of([&] { (void)epochs.settle(); }),
            "`drop_last` must leave at least 1 step, but leaves 0: there are 3 batches for "
            "num_replicas = 4.");
}

}  // namespace
}  // namespace evenstride
