// Deliveries among threads: nobody is left waiting, nothing comes twice or is lost.
#include "loader/delivery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "delivery_threads.h"
#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using std::chrono::milliseconds;
using testing::ClosedAtEnd;
using testing::consume;
using testing::eventually;
using testing::kLong;
using testing::kNone;
using testing::parcel_of;
using testing::produce;
using testing::Threads;
using testing::Values;
using Outcome = Delivery::Outcome;
using Waits = Delivery::Waits;

// Returns how many producers or consumers wait, or less: the seconds that they wait in a second.
template <double Waits::* seconds>
double num_waiting(const Delivery& delivery) {
  const auto beginning = std::chrono::steady_clock::now();
  const double before = delivery.waits().*seconds;
  std::this_thread::sleep_for(milliseconds(1));
  const double after = delivery.waits().*seconds;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - beginning;
  return (after - before) / elapsed.count();
}

TEST(Delivery, EveryTargetInOrderGetsItsOwnInTheirOrder) {
  for (std::uint32_t num_targets = 1; num_targets <= 6; ++num_targets) {
    Delivery delivery(
        {.num_batches = 120, .taken = {0, 1, 5, 30}, .num_targets = num_targets, .depth = 2});
    std::vector<Values> taken(num_targets);
    {
      Threads threads;
      for (std::uint64_t producer = 0; producer < 3; ++producer) {
        threads.start([&, producer] { produce(delivery, producer); });
      }
      for (std::uint32_t target = 0; target < num_targets; ++target) {
        threads.start([&, target] { taken[target] = consume(delivery, target, 10 + target); });
      }
    }
    std::vector<Values> expected(num_targets);
    std::size_t place = 0;
    for (std::uint64_t batch = 0; batch < 120; ++batch) {
      if (batch > 1 && batch != 5 && batch != 30) {
        expected[place++ % num_targets].push_back(batch);
      }
    }
    EXPECT_EQ(taken, expected);
    EXPECT_EQ(delivery.progress().first, 120U);
    EXPECT_EQ(delivery.progress().num_taken, 120U);
  }
}

TEST(Delivery, ProducersStopWhereThereIsNoRoomAndGoOnWithEachBatchTaken) {
  for (const bool in_order : {true, false}) {
    Delivery delivery({.num_batches = 50,
                       .num_targets = 3,
                       .depth = 4,
                       .num_producers = 50,
                       .in_order = in_order});
    Threads threads;
    const ClosedAtEnd closed(delivery);
    threads.start([&] { produce(delivery, 1); });
    threads.start([&] { produce(delivery, 2); });
    const auto num_ready = [&] {
      const auto depths = delivery.queue_depths();
      return depths[0] + depths[1] + depths[2];
    };
    for (std::uint32_t taken = 0; taken < 10; ++taken) {
      ASSERT_TRUE(eventually([&] { return num_ready() == 12; }));
      std::this_thread::sleep_for(milliseconds(2));
      ASSERT_EQ(num_ready(), 12U);
      ASSERT_EQ(delivery.take(taken % 3, kLong).outcome, Outcome::kBatch);
    }
    EXPECT_GT(delivery.waits().producers_s, 0.01);
    EXPECT_EQ(delivery.waits().consumers_s, 0);
  }
}

TEST(Delivery, AStalledConsumerOutOfOrderBlocksNobody) {
  Delivery delivery(
      {.num_batches = 400, .num_targets = 3, .depth = 2, .num_producers = 2, .in_order = false});
  Values taken;
  Values others;
  {
    Threads threads;
    threads.start([&] { produce(delivery, 1); });
    threads.start([&] { produce(delivery, 2); });
    threads.start([&] { others = consume(delivery, 1, 3); });
    taken = consume(delivery, 2, 4);
  }
  taken.insert(taken.end(), others.begin(), others.end());
  EXPECT_EQ(testing::sorted(taken), testing::indices_below(400));
  EXPECT_EQ(delivery.take(0, kLong).outcome, Outcome::kEnd);
}

TEST(Delivery, CloseWakesEverybodyAndDropsWhatIsThere) {
  for (const bool in_order : {true, false}) {
    Delivery delivery({.num_batches = 50, .num_targets = 2, .depth = 1, .in_order = in_order});
    const auto first = delivery.claim();
    const auto second = delivery.claim();
    ASSERT_TRUE(first && second);
    std::atomic<int> woken = 0;
    Threads threads;
    const ClosedAtEnd closed(delivery);
    for (std::uint32_t i = 0; i < 4; ++i) {
      threads.start([&, i] {
        woken +=
            i < 2 ? !delivery.claim() : delivery.take(i % 2, kLong).outcome == Outcome::kClosed;
      });
    }
    ASSERT_TRUE(eventually([&] {
      return num_waiting<&Waits::producers_s>(delivery) > 1.5 &&
             num_waiting<&Waits::consumers_s>(delivery) > 1.5;
    }));
    delivery.close();
    delivery.close();
    threads.join();
    EXPECT_EQ(woken, 4);

    const std::weak_ptr<void> dropped = [&] {
      auto parcel = parcel_of(*first);
      std::weak_ptr<void> watched = parcel;
      delivery.put(*first, std::move(parcel));
      return watched;
    }();
    EXPECT_TRUE(dropped.expired());
    EXPECT_FALSE(delivery.claim());
    EXPECT_EQ(delivery.take(0, kLong).outcome, Outcome::kClosed);
    EXPECT_EQ(delivery.queue_depths(), (std::vector<std::uint32_t>{0, 0}));
    EXPECT_EQ(delivery.progress().num_taken, 0U);
  }
}

TEST(Delivery, DestructionWaitsForThoseWhoWaitInside) {
  for (int round = 0; round < 20; ++round) {
    auto delivery = std::make_unique<Delivery>(DeliveryOptions{.num_batches = 4});
    Delivery& inside = *delivery;
    Threads threads;
    threads.start([&] { EXPECT_EQ(inside.take(0, kLong).outcome, Outcome::kClosed); });
    ASSERT_TRUE(eventually([&] { return inside.waits().consumers_s > 0; }));
    delivery.reset();
  }
}

TEST(Delivery, ParcelsDieUnlocked) {
  Delivery delivery({.num_batches = 4, .depth = 4});
  int deaths = 0;
  const auto parcel = [&] {
    return std::shared_ptr<void>(nullptr, [&](void*) {
      (void)delivery.progress();
      ++deaths;
    });
  };
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    ASSERT_EQ(delivery.claim(), batch);
  }
  delivery.put(0, parcel());
  delivery.put(1, parcel());
  (void)delivery.take(0, kNone);
  EXPECT_EQ(deaths, 1);
  delivery.close();
  EXPECT_EQ(deaths, 2);
  delivery.put(2, parcel());
  EXPECT_EQ(deaths, 3);
}

TEST(Delivery, AFailureWakesThoseWhomItConcernsWithTheSameException) {
  for (const bool in_order : {true, false}) {
    Delivery delivery({.num_batches = 9, .num_targets = 3, .depth = 2, .in_order = in_order});
    const auto failure = std::make_exception_ptr(std::runtime_error("a bad row"));
    std::atomic<int> thrown = 0;
    Threads threads;
    const ClosedAtEnd closed(delivery);
    for (std::uint32_t target = 0; target < 3; ++target) {
      threads.start([&, target] {
        try {
          while (delivery.take(target, kLong).outcome == Outcome::kBatch) {
          }
        } catch (const std::runtime_error&) {
          thrown += std::current_exception() == failure;
        }
      });
    }
    for (std::uint64_t batch = 0; batch < 6; ++batch) {
      ASSERT_EQ(delivery.claim(), batch);
    }
    threads.start([&] { EXPECT_EQ(delivery.claim(), std::nullopt); });
    ASSERT_TRUE(eventually([&] { return delivery.waits().producers_s > 0; }));
    delivery.fail(1, failure);
    delivery.put(2, parcel_of(2));
    threads.join();
    EXPECT_EQ(thrown, 3);
  }
}

TEST(Delivery, ABatchGoesToTheConsumerThatHasWaitedLongest) {
  Delivery delivery({.num_batches = 4, .num_targets = 2, .depth = 2, .in_order = false});
  std::mutex mutex;
  std::vector<std::uint32_t> served;
  double num_started = 0;
  Threads threads;
  const ClosedAtEnd closed(delivery);
  for (const std::uint32_t target : {1U, 0U, 0U}) {
    threads.start([&, target] {
      const auto taken = delivery.take(target, kLong);
      const std::lock_guard lock(mutex);
      served.push_back(target + 10 * static_cast<std::uint32_t>(taken.batch));
    });
    ++num_started;
    ASSERT_TRUE(
        eventually([&] { return num_waiting<&Waits::consumers_s>(delivery) > num_started - 0.5; }));
  }
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    ASSERT_EQ(delivery.claim(), batch);
    delivery.put(batch, parcel_of(batch));
  }
  threads.join();
  std::sort(served.begin(), served.end());
  EXPECT_EQ(served, (std::vector<std::uint32_t>{1, 10, 20}));
}

TEST(Delivery, PatienceEndsAndIsCounted) {
  Delivery delivery({.num_batches = 4});
  EXPECT_EQ(delivery.take(0, milliseconds(-5)).outcome, Outcome::kTimeout);
  EXPECT_EQ(delivery.waits().consumers_s, 0);
  EXPECT_EQ(delivery.take(0, milliseconds(5)).outcome, Outcome::kTimeout);
  EXPECT_GE(delivery.waits().consumers_s, 0.005);
  EXPECT_EQ(delivery.waits().producers_s, 0);
}

TEST(Delivery, PatienceWithoutEndDoesNotOverflow) {
  Delivery delivery({.num_batches = 4});
  Threads threads;
  const ClosedAtEnd closed(delivery);
  std::atomic<bool> is_back = false;
  threads.start([&] {
    EXPECT_EQ(delivery.take(0, milliseconds::max()).outcome, Outcome::kBatch);
    is_back = true;
  });
  ASSERT_TRUE(eventually([&] { return delivery.waits().consumers_s > 0.001; }));
  EXPECT_FALSE(is_back);
  ASSERT_EQ(delivery.claim(), 0U);
  delivery.put(0, parcel_of(0));
  threads.join();
}

TEST(Delivery, ProducersEndAsSoonAsTheLastBatchIsClaimed) {
  Delivery delivery({.num_batches = 2});
  ASSERT_EQ(delivery.claim(), 0U);
  delivery.put(0, parcel_of(0));
  std::atomic<int> claimed = 0;
  std::atomic<int> ended = 0;
  Threads threads;
  const ClosedAtEnd closed(delivery);
  for (int i = 0; i < 3; ++i) {
    threads.start([&] { ++(delivery.claim() ? claimed : ended); });
  }
  ASSERT_TRUE(eventually([&] { return num_waiting<&Waits::producers_s>(delivery) > 2.5; }));
  EXPECT_EQ(delivery.take(0, kLong).batch, 0U);
  EXPECT_TRUE(eventually([&] { return claimed == 1 && ended == 2; }));
}

TEST(Delivery, AFailureEndsTheProducersThoughNobodyTakes) {
  Delivery delivery({.num_batches = 9});
  ASSERT_EQ(delivery.claim(), 0U);
  std::atomic<int> ended = 0;
  Threads threads;
  const ClosedAtEnd closed(delivery);
  for (int i = 0; i < 2; ++i) {
    threads.start([&] { ended += !delivery.claim(); });
  }
  ASSERT_TRUE(eventually([&] { return num_waiting<&Waits::producers_s>(delivery) > 1.5; }));
  delivery.fail(0, std::make_exception_ptr(std::runtime_error("a bad row")));
  EXPECT_TRUE(eventually([&] { return ended == 2; }));
}

TEST(Delivery, ABatchThatMakesRoomForSeveralWakesAsManyProducers) {
  Delivery delivery({.num_batches = 20, .depth = 4, .in_order = false});
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    ASSERT_EQ(delivery.claim(), batch);
  }
  for (std::uint64_t batch = 1; batch < 4; ++batch) {
    delivery.put(batch, parcel_of(batch));
    ASSERT_EQ(delivery.take(0, kLong).batch, batch);
  }
  ASSERT_EQ(delivery.claim(), 4U);
  std::atomic<int> claimed = 0;
  Threads threads;
  const ClosedAtEnd closed(delivery);
  for (int i = 0; i < 3; ++i) {
    threads.start([&] { claimed += delivery.claim().has_value(); });
  }
  ASSERT_TRUE(eventually([&] { return num_waiting<&Waits::producers_s>(delivery) > 2.5; }));
  delivery.put(0, parcel_of(0));
  EXPECT_EQ(delivery.take(0, kLong).batch, 0U);
  EXPECT_TRUE(eventually([&] { return claimed == 3; }));
}

TEST(Delivery, SaysThatThereIsNoSuchTarget) {
  Delivery delivery({.num_batches = 4, .num_targets = 3});
  EXPECT_EQ(testing::message_of([&] { (void)delivery.take(3, kNone); }),
            "`target` must be in [0, 3), but is 3.");
}

TEST(Delivery, AForkedProcessNeitherWaitsNorTakes) {
  auto delivery = std::make_unique<Delivery>(DeliveryOptions{.num_batches = 9});
  Delivery& inside = *delivery;
  Threads threads;
  threads.start([&] { EXPECT_EQ(inside.take(0, kLong).outcome, Outcome::kClosed); });
  threads.start([&] {
    while (inside.claim()) {
    }
  });
  ASSERT_TRUE(
      eventually([&] { return inside.waits().consumers_s > 0 && inside.waits().producers_s > 0; }));
  EXPECT_TRUE(testing::holds_in_a_fork([&] {
    const std::string message =
        "Batches are delivered in the process that began the pass, but this one was forked from it "
        "since; begin a pass here.";
    const bool is_still = !inside.claim() && testing::message_of<std::runtime_error>(
                                                 [&] { (void)inside.take(0, kLong); }) == message;
    inside.put(0, parcel_of(0));
    inside.fail(0, std::make_exception_ptr(std::runtime_error("unheard")));
    inside.close();
    delivery.reset();
    return is_still;
  }));
  delivery->close();
}

}  // namespace
}  // namespace evenstride
