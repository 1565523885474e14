// A team of threads: every task once, every exception passed on, and nothing left behind.
#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "samples.h"

namespace evenstride {
namespace {

constexpr int kLargestTeam = 8;

TEST(Threads, EveryTaskRunsOnce) {
  for (int size = 1; size <= kLargestTeam; ++size) {
    Team team(size);
    ASSERT_EQ(team.size(), size);
    for (const std::size_t num_tasks : {0U, 1U, 2U, 7U, 1000U}) {
      std::vector<int> runs(num_tasks);
      team.for_each(num_tasks, [&](std::size_t task, int) { ++runs.at(task); });
      EXPECT_EQ(runs, std::vector<int>(num_tasks, 1)) << size << " threads";
    }
  }
}

TEST(Threads, AMemberRunsOneTaskAtATime) {
  for (int size = 1; size <= kLargestTeam; ++size) {
    Team team(size);
    std::vector<std::atomic<int>> running(static_cast<std::size_t>(size));
    std::atomic<int> wrong = 0;
    team.for_each(2000, [&](std::size_t, int member) {
      auto& mine = running.at(static_cast<std::size_t>(member));
      wrong += mine.fetch_add(1) != 0;
      mine.fetch_sub(1);
    });
    EXPECT_EQ(wrong, 0);
  }
}

// Nothing here is atomic, so a loop that returned too early or began too late would be a data race.
TEST(Threads, WhatABodyWroteIsVisibleToTheNextOfThousandsOfShortLoops) {
  for (const int size : {2, 3, kLargestTeam}) {
    Team team(size);
    testing::Values values(5);
    const std::uint64_t num_loops = size == kLargestTeam ? 200 : 3000;
    for (std::uint64_t loop = 0; loop < num_loops; ++loop) {
      team.for_each(values.size(), [&](std::size_t task, int) { values[task] += task + loop; });
      ASSERT_EQ(values[1], loop + 1 + loop * (loop + 1) / 2);
    }
  }
}

TEST(Threads, AnExceptionIsRethrownAndTheTeamGoesOn) {
  for (int size = 1; size <= kLargestTeam; ++size) {
    Team team(size);
    for (int round = 0; round < 20; ++round) {
      const auto fail = [&](std::size_t task, int) {
        if (task == 3) {
          throw std::runtime_error("task " + std::to_string(task) + " failed");
        }
      };
      EXPECT_EQ(testing::message_of<std::runtime_error>([&] { team.for_each(100, fail); }),
                "task 3 failed");
      std::atomic<int> runs = 0;
      team.for_each(20, [&](std::size_t, int) { ++runs; });
      EXPECT_EQ(runs, 20);
    }
  }
}

TEST(Threads, OneOfManyExceptionsIsRethrown) {
  Team team(4);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(team.for_each(100, [](std::size_t, int) { throw std::domain_error("each"); }),
                 std::domain_error);
  }
}

TEST(Threads, TasksAfterAnExceptionAreSkipped) {
  Team team(1);
  int runs = 0;
  EXPECT_THROW(team.for_each(100,
                             [&](std::size_t task, int) {
                               ++runs;
                               if (task == 3) {
                                 throw std::runtime_error("stop");
                               }
                             }),
               std::runtime_error);
  EXPECT_EQ(runs, 4);
}

TEST(Threads, TeamsMayEndWithoutALoopOrRightAfterOne) {
  for (int round = 0; round < 100; ++round) {
    const Team idle(1 + round % kLargestTeam);
    Team team(1 + round % 3);
    std::atomic<int> runs = 0;
    team.for_each(3, [&](std::size_t, int) { ++runs; });
    EXPECT_EQ(runs, 3);
  }
}

TEST(Threads, TeamsOfSeveralThreadsWorkSideBySide) {
  Team outer(3);
  std::atomic<int> runs = 0;
  outer.for_each(6, [&](std::size_t, int) {
    Team inner(2);
    inner.for_each(10, [&](std::size_t, int) { ++runs; });
  });
  EXPECT_EQ(runs, 60);
}

TEST(Threads, ThereIsAProcessorToRunOn) {
  EXPECT_GE(available_processors(), 1);
}

}  // namespace
}  // namespace evenstride
