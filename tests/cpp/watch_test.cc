// Long work that is watched: it stops when it is asked to, says how far it is, and is else the
// same.
#include "core/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/fingerprint.h"
#include "core/plan.h"
#include "core/stats.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Values;

constexpr std::size_t kSamples = 300'000;

Values some_lengths() {
  testing::Random random(1);
  return testing::random_lengths(random, kSamples, 500);
}

PlanOptions options_of(Order order, Composition composition, int num_threads) {
  PlanOptions options;
  options.limits.token_budget = 2000;
  options.composition = composition;
  options.order = order;
  options.num_threads = num_threads;
  return options;
}

std::vector<std::uint32_t> indices_of(const EpochPlan& plan) {
  const auto& indices = std::get<Buffer<std::uint32_t>>(plan.indices);
  return {indices.data(), indices.data() + indices.size()};
}

// Every kind of plan that has loops of its own.
struct Kind {
  std::string name;
  Order order;
  Composition composition = Composition::kShuffle;
  StepOptions steps{.num_replicas = 3, .drop_last = false, .steps_per_epoch = std::nullopt};
};

std::vector<Kind> kinds() {
  std::vector<Kind> kinds;
  for (const char* order : {"stride", "balanced", "stratified", "mixed", "shuffle", "diversity",
                            "round_robin", "ascending"}) {
    kinds.push_back({.name = order, .order = parse_order(order)});
  }
  kinds.push_back({.name = "window", .order = Order::kStride, .composition = Composition::kWindow});
  kinds.push_back({.name = "frozen", .order = Order::kStride, .composition = Composition::kFrozen});
  kinds.push_back(
      {.name = "drop_last",
       .order = Order::kStride,
       .steps = {.num_replicas = 3, .drop_last = true, .steps_per_epoch = std::nullopt}});
  return kinds;
}

// A watch that is stopped by another thread as soon as so much of the work is done.
class StoppedAt {
 public:
  explicit StoppedAt(double fraction)
      : stopper_([this, fraction] {
          while (!is_over_ && watch.fraction() < fraction) {
            std::this_thread::yield();
          }
          watch.stop();
        }) {}
  ~StoppedAt() {
    is_over_ = true;
    stopper_.join();
  }
  StoppedAt(const StoppedAt&) = delete;
  StoppedAt& operator=(const StoppedAt&) = delete;

  Watch watch;

 private:
  std::atomic<bool> is_over_ = false;
  std::thread stopper_;
};

TEST(WatchThreads, APlannerThatWasStoppedAnywherePlansRightAfterwards) {
  const Values values = some_lengths();
  const Lengths lengths = testing::view(values);
  int num_stopped = 0;
  for (const Kind& kind : kinds()) {
    for (const int num_threads : {1, 3}) {
      Planner planner(lengths, {100, 250}, options_of(kind.order, kind.composition, num_threads));
      const Settlement settlement = planner.settle(kind.steps);
      const std::vector<std::uint32_t> expected =
          indices_of(planner.plan(1, kind.steps, settlement));
      for (const double fraction : {0.0, 0.2, 0.6}) {
        StoppedAt stopped(fraction);
        // It may be over before it is stopped.
        try {
          (void)planner.plan(2, kind.steps, settlement, &stopped.watch);
        } catch (const Stopped&) {
          ++num_stopped;
        }
        EXPECT_EQ(indices_of(planner.plan(1, kind.steps, settlement)), expected) << kind.name;
      }
    }
  }
  EXPECT_GT(num_stopped, 0);
}

TEST(WatchThreads, AStopBeforeTheWorkStopsEveryKindOfIt) {
  const Values values = some_lengths();
  const Lengths lengths = testing::view(values);
  Watch stopped;
  stopped.stop();
  for (const int num_threads : {1, 3}) {
    for (const Kind& kind : kinds()) {
      const PlanOptions options = options_of(kind.order, kind.composition, num_threads);
      EXPECT_THROW(Planner(lengths, {100}, options, &stopped), Stopped);
      EXPECT_THROW((void)inner_edges_for(lengths, std::uint64_t{4}, 1, options, &stopped), Stopped);
      Planner planner(lengths, {100}, options);
      EXPECT_THROW((void)planner.settle(kind.steps, &stopped), Stopped);
      EXPECT_THROW((void)planner.plan(0, kind.steps, std::nullopt, &stopped), Stopped);
    }
    Team team(num_threads, &stopped);
    EXPECT_THROW((void)fingerprint(lengths, team), Stopped);
    const std::vector<std::uint32_t> indices{0, 1};
    const std::vector<std::int64_t> offsets{0, 1, 2};
    EXPECT_THROW((void)batch_tokens(lengths, std::span(indices), offsets, team), Stopped);
  }
}

TEST(Watch, AllTheWorkThatWasExpectedIsCounted) {
  const Values values = some_lengths();
  const Lengths lengths = testing::view(values);
  for (const Kind& kind : kinds()) {
    Watch making;
    const PlanOptions options = options_of(kind.order, kind.composition, 1);
    Planner planner(lengths, inner_edges_for(lengths, std::uint64_t{3}, 1, options, &making),
                    options, &making);
    EXPECT_EQ(making.fraction(), 1.0) << kind.name;
    Watch settling;
    const Settlement settlement = planner.settle(kind.steps, &settling);
    EXPECT_EQ(settling.fraction(), 1.0) << kind.name;
    Watch planning;
    (void)planner.plan(3, kind.steps, settlement, &planning);
    EXPECT_GT(planning.fraction(), 0.8) << kind.name;  // How many batches there are is estimated.
  }
}

TEST(Watch, AFractionOfNothingExpectedIsZeroAndOfTooLittleOne) {
  Watch watch;
  EXPECT_EQ(watch.fraction(), 0.0);
  watch.advance(3);
  EXPECT_EQ(watch.fraction(), 0.0);
  watch.expect(4);
  EXPECT_EQ(watch.fraction(), 0.75);
  watch.expect(2);
  EXPECT_EQ(watch.fraction(), 0.75);
  watch.advance(9);
  EXPECT_EQ(watch.fraction(), 1.0);
}

TEST(Watch, PiecesAreInOrderAndEachIsCheckedFirst) {
  Watch watch;
  watch.expect(20);
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  const auto add = [&](std::size_t begin, std::size_t end) {
    pieces.emplace_back(begin, end);
    if (end == 13) {
      watch.stop();
    }
  };
  in_counted_pieces(watch, 3, 10, 2, add, 3);
  EXPECT_EQ(pieces, (decltype(pieces){{3, 6}, {6, 9}, {9, 10}}));
  EXPECT_EQ(watch.fraction(), 0.7);
  pieces.clear();
  EXPECT_THROW(in_pieces(watch, 10, 16, add, 3), Stopped);
  EXPECT_EQ(pieces, (decltype(pieces){{10, 13}}));
  in_pieces(watch, 5, 5, add);
}

TEST(WatchThreads, ATeamChecksBeforeEveryTaskAndCountsThoseThatEnded) {
  for (const int size : {1, 4}) {
    Watch watch;
    watch.expect(100);
    Team team(size, &watch);
    team.for_each(50, [](std::size_t, int) {}, 1);
    EXPECT_EQ(watch.fraction(), 0.5);
    std::atomic<int> tasks = 0;
    const auto stop = [&](std::size_t, int) {
      ++tasks;
      watch.stop();
    };
    EXPECT_THROW(team.for_each(1000, stop, 1), Stopped);
    EXPECT_LE(tasks, size);
    EXPECT_THROW(team.for_each(1, stop), Stopped);
  }
}

}  // namespace
}  // namespace evenstride
