// Long work in a thread of its own: taken, stopped, left behind, and left out by a fork.
#include "loader/helper.h"
#include "loader/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <variant>
#include <vector>

#include "core/plan.h"
#include "core/threads.h"

namespace evenstride {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};
constexpr StepOptions kSteps{1, false, std::nullopt};

// Goes on until it is asked to stop.
int endless(Watch& watch, std::atomic<bool>& has_begun) {
  for (;;) {
    has_begun = true;
    watch.check();
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void await(const std::atomic<bool>& flag) {
  while (!flag) {
    std::this_thread::yield();
  }
}

TEST(Helper, ReturnsWhatTheWorkReturned) {
  Helper<int> helper([](Watch& watch) {
    watch.expect(2);
    watch.advance(1);
    return 7;
  });
  ASSERT_TRUE(helper.wait_for(kLong));
  EXPECT_EQ(helper.fraction(), 0.5);
  EXPECT_EQ(helper.take(), 7);
}

TEST(Helper, ThrowsWhatTheWorkThrew) {
  Helper<int> helper([](Watch&) -> int { throw std::invalid_argument("no"); });
  ASSERT_TRUE(helper.wait_for(kLong));
  EXPECT_THROW((void)helper.take(), std::invalid_argument);
}

TEST(Helper, StopsWhenAsked) {
  std::atomic<bool> has_begun = false;
  Helper<int> helper([&](Watch& watch) { return endless(watch, has_begun); });
  await(has_begun);
  EXPECT_FALSE(helper.wait_for(milliseconds(0)));
  helper.stop();
  ASSERT_TRUE(helper.wait_for(kLong));
  EXPECT_THROW((void)helper.take(), Stopped);
}

TEST(Helper, EndsTheWorkAtItsOwnEnd) {
  std::atomic<bool> has_begun = false;
  std::atomic<bool> has_ended = false;
  {
    const Helper<int> helper([&](Watch& watch) {
      try {
        return endless(watch, has_begun);
      } catch (const Stopped&) {
        has_ended = true;
        throw;
      }
    });
    await(has_begun);
  }
  EXPECT_TRUE(has_ended);
}

TEST(Helper, AForkedChildDoesNotWait) {
  std::atomic<bool> has_begun = false;
  auto* const helper = new Helper<int>([&](Watch& watch) { return endless(watch, has_begun); });
  await(has_begun);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_here = helper->is_here();
    helper->stop();
    delete helper;
    _exit(is_here ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(helper->wait_for(milliseconds(0)));
  delete helper;
}

TEST(Helper, APlanOfLowestPriorityIsThePlanEvenBesideAnother) {
  std::vector<std::uint16_t> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint16_t>(1 + i * i % 97);
  }
  PlanOptions options;
  options.limits = {
      .token_budget = 500, .max_batch_size = 64, .batch_size_multiple = 1, .pad_to_multiple_of = 1};
  options.num_threads = 2;
  Planner planner(std::span<const std::uint16_t>(values), {30, 60}, options);
  const Settlement settlement = planner.settle(kSteps);
  const auto indices_of = [](const EpochPlan& plan) {
    const auto& indices = std::get<Buffer<std::uint32_t>>(plan.indices);
    return std::vector<std::uint32_t>(indices.data(), indices.data() + indices.size());
  };
  const auto expected = indices_of(planner.plan(2, kSteps, settlement));
  std::atomic<int> priority = -1;
  const auto begin = [&](Watch& watch) {
    take_lowest_priority();
    priority = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    return planner.plan(2, kSteps, settlement, &watch);
  };
  const int own_priority = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  Helper<EpochPlan> helper(begin);
  EXPECT_NE(indices_of(planner.plan(1, kSteps, settlement)), expected);
  ASSERT_TRUE(helper.wait_for(kLong));
  EXPECT_EQ(indices_of(helper.take()), expected);
  EXPECT_EQ(priority, 19);
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), own_priority);
  for (int delay = 0; delay < 4; ++delay) {
    const Helper<EpochPlan> stopped(begin);
    std::this_thread::sleep_for(milliseconds(delay));
  }
  EXPECT_EQ(indices_of(planner.plan(2, kSteps, settlement)), expected);
}

}  // namespace
}  // namespace evenstride
