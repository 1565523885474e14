// Whole epochs, end to end: every order, composition and number of ranks.
#include "core/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "planned.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::fault_of;
using testing::Plan;
using testing::plan_of;
using testing::Random;
using testing::Task;
using testing::Values;

constexpr std::array kOrders = {Order::kStride,    Order::kBalanced,   Order::kStratified,
                                Order::kMixed,     Order::kShuffle,    Order::kAntiRepeat,
                                Order::kDiversity, Order::kDiversity2, Order::kRoundRobin,
                                Order::kAscending, Order::kDescending};
constexpr std::array kCompositions = {Composition::kShuffle, Composition::kWindow,
                                      Composition::kFrozen, Composition::kSorted};

Task random_task(Random& random, std::size_t most_samples) {
  Task task;
  const std::uint64_t longest = random.between(1, 60);
  task.lengths = testing::random_lengths(random, random.between(1, most_samples), longest);
  task.lengths.push_back(1);  // One at least is admitted.
  task.edges = testing::random_edges(random, 5, longest);
  task.options.limits = testing::random_limits(random, longest);
  task.options.window = random.between(1, 50);
  task.options.jitter = fixed_jitter(0.25);
  task.options.accumulation_steps = random.between(1, 4);
  task.options.seed = random.next();
  if (random.one_in(4)) {
    task.options.admission.max_length = random.between(1, longest);
    task.options.admission.too_long = random.one_in(2) ? TooLong::kAlone : TooLong::kDrop;
    if (random.one_in(2)) {
      task.options.limits.token_budget = longest / 2 + task.options.limits.pad_to_multiple_of;
    }
  }
  if (random.one_in(4)) {
    task.options.admission.empty = Empty::kDrop;
  }
  return task;
}

bool is_possible(Order order, Composition composition) {
  return order != Order::kMixed || composition == Composition::kShuffle ||
         composition == Composition::kSorted;
}

// A plan, or nothing where drop_last leaves no step.
std::optional<Plan> try_plan(Planner& planner, const Task& task, std::uint64_t epoch) {
  try {
    return testing::plain(planner.plan(epoch, task.steps));
  } catch (const std::invalid_argument& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("`drop_last` must leave at least 1 step"))
        << error.what();
    return std::nullopt;
  }
}

class EveryOrder : public ::testing::TestWithParam<Order> {};

TEST_P(EveryOrder, PlansEverySampleWithinTheLimitsAndAlikeWithWideEntries) {
  Random random(1);
  for (const Composition composition : kCompositions) {
    for (const std::uint64_t num_replicas : {1U, 2U, 3U, 8U}) {
      for (int trial = 0; trial < 8; ++trial) {
        Task task = random_task(random, 150);
        task.options.order = GetParam();
        task.options.composition = composition;
        task.steps = testing::ranks(num_replicas, random.one_in(4));
        if (!is_possible(task.options.order, composition)) {
          continue;
        }
        Planner planner(testing::view(task.lengths), task.edges, task.options);
        Task wide = task;
        wide.options.force_wide = true;
        wide.options.num_threads = 3;
        Planner wide_planner(testing::view(task.lengths), task.edges, wide.options);
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
          const auto plan = try_plan(planner, task, epoch);
          if (plan) {
            Task checked = task;
            if (composition == Composition::kSorted) {
              checked.options.order = Order::kDescending;
            }
            ASSERT_EQ(fault_of(*plan, checked, planner), "") << "trial " << trial;
          }
          ASSERT_EQ(try_plan(wide_planner, wide, epoch), plan) << "trial " << trial;
        }
      }
    }
  }
}

TEST_P(EveryOrder, ASettledPlanHasTheSameStepsInTwentyEpochs) {
  Random random(2);
  for (int trial = 0; trial < 24; ++trial) {
    Task task = random_task(random, 200);
    task.options.order = GetParam();
    task.options.composition = kCompositions.at(random.below(3));
    task.options.limits.batch_size_multiple = random.between(1, 4);
    task.steps = testing::ranks(random.between(1, 4), random.one_in(4));
    if (!is_possible(task.options.order, task.options.composition)) {
      continue;
    }
    Planner planner(testing::view(task.lengths), task.edges, task.options);
    std::optional<Settlement> settled;
    try {
      settled = planner.settle(task.steps);
    } catch (const std::invalid_argument&) {
      continue;
    }
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
      const Plan plan = testing::plain(planner.plan(epoch, task.steps, settled));
      ASSERT_EQ(plan.num_steps, settled->steps) << "trial " << trial << ", epoch " << epoch;
      ASSERT_EQ(fault_of(plan, task, planner), "") << "trial " << trial << ", epoch " << epoch;
    }
    ASSERT_EQ(testing::plain(planner.plan(0, task.steps, settled)), plan_of(task));
  }
}

TEST_P(EveryOrder, StepsAreExactAtBothEndsOfTheirRange) {
  Random random(3);
  for (int trial = 0; trial < 30; ++trial) {
    Task task = random_task(random, 120);
    task.options.order = GetParam();
    task.options.accumulation_steps = GetParam() == Order::kMixed ? 1 : 2;
    task.steps.num_replicas = random.between(1, 3);
    Planner planner(testing::view(task.lengths), task.edges, task.options);
    const std::uint64_t natural = planner.settle(task.steps).steps;
    const auto message = [&](std::uint64_t steps_per_epoch) {
      task.steps.steps_per_epoch = steps_per_epoch;
      return testing::message_of([&] { (void)planner.settle(task.steps); });
    };
    const std::string range = message(std::uint64_t{1} << 60);
    const std::string start = "`steps_per_epoch` must be in [";
    ASSERT_TRUE(range.starts_with(start)) << range;
    const std::uint64_t least = std::stoull(range.substr(start.size()));
    const std::uint64_t most = std::stoull(range.substr(range.find(", ") + 2));
    for (const std::uint64_t steps : {least, (least + most) / 2, most, natural}) {
      task.steps.steps_per_epoch = steps;
      const Settlement settled = planner.settle(task.steps);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const Plan plan = testing::plain(planner.plan(epoch, task.steps, settled));
        ASSERT_EQ(plan.num_steps, steps) << "trial " << trial;
        ASSERT_EQ(fault_of(plan, task, planner), "") << "trial " << trial << ", steps " << steps;
      }
    }
    if (most + 1 != natural) {
      EXPECT_NE(message(most + 1), "nothing was thrown");
    }
    if (least > 1) {
      EXPECT_NE(message(least - 1), "nothing was thrown");
    }
  }
}

std::string name_of_param(const ::testing::TestParamInfo<Order>& info) {
  return std::string(name_of(info.param));
}

INSTANTIATE_TEST_SUITE_P(Plan, EveryOrder, ::testing::ValuesIn(kOrders), name_of_param);

// Lengths that a formula gives, so that other languages can check the same plans.
Task formula_task(std::size_t size) {
  Task task;
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t draw = (i * 2'654'435'761 >> 7) % 1024;
    task.lengths.push_back(1 + draw * draw / 2048);
  }
  task.edges = {40, 120, 260, 400};
  task.options.limits = {.token_budget = 4096, .max_batch_size = 64};
  task.options.jitter = fixed_jitter(0.25);
  return task;
}

// A plan of fewer than 65,536 samples a thread uses fewer threads.
TEST(Plan, IsTheSameForOneTwoThreeAndEightThreads) {
  Task task = formula_task(460'000);
  const auto expect_same = [&](Order order, Composition composition, std::uint64_t num_replicas) {
    task.options.order = order;
    task.options.composition = composition;
    task.options.num_threads = 1;
    task.steps.num_replicas = num_replicas;
    const std::uint64_t expected = testing::hash_of(plan_of(task, 1));
    for (const int num_threads : {2, 3, 8}) {
      task.options.num_threads = num_threads;
      EXPECT_EQ(testing::hash_of(plan_of(task, 1)), expected) << num_threads << " threads";
    }
  };
  expect_same(Order::kStride, Composition::kShuffle, 1);
  expect_same(Order::kBalanced, Composition::kWindow, 3);
  expect_same(Order::kShuffle, Composition::kFrozen, 2);
  task.options.accumulation_steps = 2;
  expect_same(Order::kMixed, Composition::kShuffle, 8);
}

// A change here changes the epochs of everyone who resumes a run: that is a new major version.
TEST(Plan, IsWhatItWas) {
  const auto hash = [](Order order, Composition composition, std::uint64_t num_replicas) {
    Task task = formula_task(5000);
    task.options.order = order;
    task.options.composition = composition;
    task.options.window = 256;
    task.options.accumulation_steps = 2;
    task.options.seed = 7;
    task.steps.num_replicas = num_replicas;
    return testing::hash_of(plan_of(task, 3));
  };
  EXPECT_EQ(hash(Order::kStride, Composition::kShuffle, 1), 11897756536098051119U);
  EXPECT_EQ(hash(Order::kStride, Composition::kWindow, 4), 9102792442772154001U);
  EXPECT_EQ(hash(Order::kBalanced, Composition::kShuffle, 3), 5651144895393283358U);
  EXPECT_EQ(hash(Order::kMixed, Composition::kShuffle, 2), 17484451170544074885U);
  EXPECT_EQ(hash(Order::kShuffle, Composition::kFrozen, 8), 7863035116612878815U);
  EXPECT_EQ(hash(Order::kStride, Composition::kSorted, 2), 6341890770913543703U);
}

TEST(Plan, SeedsAndEpochsGiveDifferentPlans) {
  Task task = formula_task(2000);
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    task.options.seed = seed;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      hashes.push_back(testing::hash_of(plan_of(task, epoch)));
    }
  }
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end());
}

std::uint64_t width_of_step(const Plan& plan, std::size_t step, std::size_t num_replicas) {
  const auto first = plan.widths.begin() + static_cast<std::ptrdiff_t>(step * num_replicas);
  return *std::max_element(first, first + static_cast<std::ptrdiff_t>(num_replicas));
}

TEST(Plan, ASortedPlanIsTheSameInEveryEpochAndLongestFirst) {
  Task task = formula_task(3000);
  task.options.composition = Composition::kSorted;
  for (const std::uint64_t num_replicas : {1U, 2U, 3U}) {
    task.steps.num_replicas = num_replicas;
    const Plan first = plan_of(task, 0);
    EXPECT_EQ(plan_of(task, 5), first);
    for (std::size_t step = 1; step < first.num_steps; ++step) {
      ASSERT_LE(width_of_step(first, step, num_replicas),
                width_of_step(first, step - 1, num_replicas));
    }
  }
}

TEST(Plan, AscendingAndDescendingGoByWidth) {
  Task task = formula_task(3000);
  task.steps.num_replicas = 2;
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    task.options.order = order;
    const Plan plan = plan_of(task);
    for (std::size_t step = 1; step < plan.num_steps; ++step) {
      const std::uint64_t before = width_of_step(plan, step - 1, 2);
      const std::uint64_t now = width_of_step(plan, step, 2);
      ASSERT_TRUE(order == Order::kAscending ? before <= now : before >= now) << step;
    }
  }
}

TEST(Plan, EdgesAboveTheLongestSampleAreLeftOut) {
  Task task;
  task.lengths = {3, 9, 50, 200};
  task.edges = {5, 9, 50, 51, 300};
  task.options.limits = {.token_budget = 100};
  task.options.admission.too_long = TooLong::kDrop;
  const Planner dropping(testing::view(task.lengths), task.edges, task.options);
  EXPECT_EQ(dropping.edges(), (Values{0, 5, 9, 50, 51}));
  task.options.admission.too_long = TooLong::kAlone;
  const Planner alone(testing::view(task.lengths), task.edges, task.options);
  EXPECT_EQ(alone.edges(), (Values{0, 5, 9, 50, 51, 201}));
}

TEST(Plan, LengthsBeyond32BitsArePlanned) {
  Task task;
  const std::uint64_t long_one = std::uint64_t{1} << 61;
  task.lengths = {long_one, 5, long_one + 7, 3, 0x80000000, 0x7FFFFFFF};
  task.edges = {100, long_one};
  task.options.limits = {.token_budget = std::uint64_t{1} << 62};
  Planner planner(testing::view(task.lengths), task.edges, task.options);
  const Plan plan = testing::plain(planner.plan(0, task.steps));
  EXPECT_EQ(fault_of(plan, task, planner), "");
}

TEST(Plan, LengthsThatChangedAreAnError) {
  for (const Order order : {Order::kStride, Order::kMixed}) {
    Task task = formula_task(1000);
    task.options.order = order;
    task.options.admission.too_long = TooLong::kDrop;
    Planner planner(testing::view(task.lengths), task.edges, task.options);
    task.lengths[500] = 5000;
    EXPECT_EQ(testing::message_of<std::runtime_error>([&] { (void)planner.plan(0, task.steps); }),
              "`lengths` must never change, but 1000 samples are 999 now.")
        << name_of(order);
  }
}

void expect_other_settlements_rejected(Order order) {
  Task task = formula_task(100);
  task.options.order = order;
  Planner planner(testing::view(task.lengths), task.edges, task.options);
  const Settlement own = planner.settle(task.steps);
  Settlement more = own;
  more.batches.back() += 1000;
  more.steps += 1000;
  Settlement none = own;
  none.batches.clear();
  Settlement zero = own;
  zero.batches.front() = 0;
  for (const Settlement& other : {more, none, zero}) {
    EXPECT_EQ(testing::message_of([&] { (void)planner.plan(0, task.steps, other); }),
              "`settlement` must be of the same lengths and options.");
  }
}

TEST(Plan, ASettlementOfOtherLengthsIsAnError) {
  expect_other_settlements_rejected(Order::kStride);
}

TEST(Plan, ASettlementOfOtherLengthsIsAnErrorInMixedOrderToo) {
  expect_other_settlements_rejected(Order::kMixed);
}

TEST(Plan, IsTheSameOnceMemoryWasReleased) {
  const Task task = formula_task(20'000);
  Planner planner(testing::view(task.lengths), task.edges, task.options);
  planner.release_memory();
  const Settlement settled = planner.settle(task.steps);
  planner.release_memory();
  EXPECT_EQ(testing::plain(planner.plan(1, task.steps)), plan_of(task, 1));
  planner.release_memory();
  planner.release_memory();
  EXPECT_EQ(planner.settle(task.steps).batches, settled.batches);
}

TEST(Plan, MemoryIsReleasedWhileThreadsPlan) {
  const Task task = formula_task(20'000);
  Planner planner(testing::view(task.lengths), task.edges, task.options);
  std::vector<Plan> plans(3);
  std::vector<std::thread> threads;
  for (Plan& plan : plans) {
    threads.emplace_back([&] { plan = testing::plain(planner.plan(0, task.steps)); });
  }
  for (int i = 0; i < 100; ++i) {
    planner.release_memory();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Plan& plan : plans) {
    EXPECT_EQ(plan, plan_of(task));
  }
}

TEST(Plan, ThreadsMayShareAPlanner) {
  const Task task = formula_task(20'000);
  Planner planner(testing::view(task.lengths), task.edges, task.options);
  std::vector<Plan> plans(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    threads.emplace_back([&, i] {
      (void)planner.settle(task.steps);
      plans[i] = testing::plain(planner.plan(i % 2, task.steps));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(plans[2], plans[0]);
  EXPECT_EQ(plans[3], plans[1]);
  EXPECT_EQ(plans[1], plan_of(task, 1));
}

}  // namespace
}  // namespace evenstride
