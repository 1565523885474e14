// Targets that leave amid a pass, and batches that are given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "delivery_threads.h"
#include "loader/delivery.h"
#include "loader/queues.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::ClosedAtEnd;
using testing::kNone;
using testing::Random;
using testing::Threads;
using testing::Values;
using Outcome = Delivery::Outcome;

constexpr std::chrono::milliseconds kLong{20'000};

Values up_to(std::uint64_t end) {
  Values values(end);
  std::iota(values.begin(), values.end(), 0U);
  return values;
}

TEST(Leave, TheOthersGoOnWithoutOneThatHasLeft) {
  Delivery delivery({.num_batches = 30, .num_targets = 3, .depth = 1, .num_producers = 1});
  const ClosedAtEnd closed(delivery);
  Threads threads;
  threads.start([&] { testing::produce(delivery, 1); });
  for (std::uint32_t target = 0; target < 3; ++target) {
    EXPECT_EQ(delivery.take(target, kLong).batch, target);
  }
  delivery.leave(1);
  delivery.leave(1);
  for (std::uint64_t batch = 3; batch < 30; batch += 3) {
    EXPECT_EQ(delivery.take(0, kLong).batch, batch);
    EXPECT_EQ(delivery.take(2, kLong).batch, batch + 2);
  }
  for (std::uint32_t target = 0; target < 3; ++target) {
    EXPECT_EQ(delivery.take(target, kNone).outcome, Outcome::kEnd);
  }
  threads.join();
  EXPECT_EQ(delivery.progress().first, 4U);
  EXPECT_EQ(delivery.progress().num_taken, 21U);
}

TEST(Leave, NothingIsMadeForOneThatHasLeft) {
  Delivery delivery({.num_batches = 12, .num_targets = 3, .depth = 4, .num_producers = 1});
  EXPECT_EQ(delivery.claim(), 0U);
  EXPECT_EQ(delivery.claim(), 1U);
  delivery.leave(1);
  delivery.put(1, testing::parcel_of(1));
  EXPECT_EQ(delivery.queue_depths(), (std::vector<std::uint32_t>{0, 0, 0}));
  for (const std::uint64_t batch : Values{2, 3, 5, 6, 8, 9, 11}) {
    EXPECT_EQ(delivery.claim(), batch);
  }
  EXPECT_EQ(delivery.claim(), std::nullopt);
}

TEST(Leave, WakesProducersWhoseBatchesNobodyWants) {
  Delivery delivery({.num_batches = 9, .num_targets = 3, .depth = 1, .num_producers = 1});
  const ClosedAtEnd closed(delivery);
  Threads threads;
  Values made;
  threads.start([&] {
    while (const auto batch = delivery.claim()) {
      made.push_back(*batch);
      delivery.put(*batch, testing::parcel_of(*batch));
    }
  });
  while (delivery.queue_depths() != std::vector<std::uint32_t>{1, 1, 1}) {
    std::this_thread::yield();
  }
  for (std::uint32_t target = 0; target < 3; ++target) {
    delivery.leave(target);
  }
  threads.join();
  EXPECT_EQ(made, up_to(3));
}

TEST(Leave, WakesOneWhoWaitsForThatTarget) {
  Delivery delivery({.num_batches = 9, .num_targets = 2, .num_producers = 1});
  Threads threads;
  threads.start([&] { EXPECT_EQ(delivery.take(1, kLong).outcome, Outcome::kEnd); });
  while (delivery.waits().consumers_s == 0) {
    std::this_thread::yield();
  }
  delivery.leave(1);
}

TEST(Leave, AFailureForOneThatHasLeftIsUnheard) {
  Delivery delivery({.num_batches = 4, .num_targets = 2, .depth = 2, .num_producers = 1});
  EXPECT_EQ(delivery.claim(), 0U);
  EXPECT_EQ(delivery.claim(), 1U);
  delivery.leave(1);
  delivery.fail(1, std::make_exception_ptr(std::runtime_error("unheard")));
  delivery.put(0, testing::parcel_of(0));
  EXPECT_EQ(delivery.claim(), 2U);
  EXPECT_EQ(delivery.take(0, kNone).batch, 0U);
  EXPECT_FALSE(delivery.has_failed());
}

TEST(Leave, OutOfOrderTheOthersTakeItsBatches) {
  Delivery delivery({.num_batches = 6, .num_targets = 2, .depth = 3, .in_order = false});
  testing::Random random(1);
  for (std::uint64_t batch = 0; batch < 6; ++batch) {
    ASSERT_EQ(delivery.claim(), batch);
    delivery.put(batch, testing::parcel_of(batch));
  }
  delivery.leave(1);
  Values taken;
  for (int i = 0; i < 6; ++i) {
    taken.push_back(delivery.take(0, kNone).batch);
  }
  std::ranges::sort(taken);
  EXPECT_EQ(taken, up_to(6));
  EXPECT_EQ(delivery.take(0, kNone).outcome, Outcome::kEnd);
}

TEST(Leave, OutOfOrderTooItTakesNoMoreAndWhatItGivesBackIsAnybodys) {
  Delivery delivery({.num_batches = 2, .num_targets = 2, .depth = 2, .in_order = false});
  for (std::uint64_t batch = 0; batch < 2; ++batch) {
    EXPECT_EQ(delivery.claim(), batch);
    delivery.put(batch, testing::parcel_of(batch));
  }
  Delivery::Taken taken = delivery.take(0, kNone);
  delivery.leave(0);
  delivery.put_back(0, std::move(taken));
  EXPECT_EQ(delivery.take(0, kNone).outcome, Outcome::kEnd);
  std::vector<std::uint64_t> rest{delivery.take(1, kNone).batch, delivery.take(1, kNone).batch};
  std::ranges::sort(rest);
  EXPECT_EQ(rest, (Values{0, 1}));
  EXPECT_EQ(delivery.take(1, kNone).outcome, Outcome::kEnd);
}

TEST(Leave, SaysWhichTargetThereIsNot) {
  Delivery delivery({.num_batches = 6, .num_targets = 2});
  EXPECT_THROW(delivery.leave(2), std::invalid_argument);
}

// An object whose end waits for a lock, as that of a Python object waits for the GIL.
class NeedsLock {
 public:
  explicit NeedsLock(std::mutex& lock) : lock_(lock) {}
  ~NeedsLock() { const std::lock_guard guard(lock_); }
  NeedsLock(const NeedsLock&) = delete;
  NeedsLock& operator=(const NeedsLock&) = delete;

 private:
  std::mutex& lock_;
};

struct Failure : std::exception {
  explicit Failure(std::mutex& lock) : needs(std::make_shared<NeedsLock>(lock)) {}
  std::shared_ptr<NeedsLock> needs;
};

TEST(Delivery, WhatItDropsDiesOutsideItsLock) {
  std::mutex lock;
  Delivery delivery({.num_batches = 8, .num_targets = 2, .depth = 4, .num_producers = 1});
  for (std::uint64_t batch = 0; batch < 8; ++batch) {
    ASSERT_EQ(delivery.claim(), batch);
  }
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    delivery.put(batch, std::make_shared<NeedsLock>(lock));
  }
  Delivery::Taken of_closed = delivery.take(0, kNone);
  Delivery::Taken of_left = delivery.take(1, kNone);
  for (const auto& drop : std::vector<std::function<void()>>{
           [&] { delivery.fail(7, std::make_exception_ptr(Failure(lock))); },
           [&] { delivery.fail(6, std::make_exception_ptr(Failure(lock))); },
           [&] { delivery.leave(1); },
           [&] { delivery.put_back(1, std::move(of_left)); },
           [&] { delivery.put(5, std::make_shared<NeedsLock>(lock)); },
           [&] { delivery.close(); },
           [&] { delivery.put_back(0, std::move(of_closed)); },
           [&] { delivery.fail(4, std::make_exception_ptr(Failure(lock))); },
       }) {
    std::unique_lock held(lock);
    Threads threads;
    threads.start(drop);
    // This thread has the one lock, and asks for the other.
    for (int i = 0; i < 2000; ++i) {
      (void)delivery.queue_depths();
      std::this_thread::yield();
    }
    held.unlock();
  }
}

TEST(PutBack, ABatchIsTakenAgainAndHasNotBeenUntilThen) {
  for (const bool in_order : {true, false}) {
    Delivery delivery({.num_batches = 5, .taken = {1, 2}, .depth = 5, .in_order = in_order});
    for (const std::uint64_t batch : Values{0, 3, 4}) {
      ASSERT_EQ(delivery.claim(), batch);
    }
    delivery.put(0, testing::parcel_of(0));
    Delivery::Taken taken = delivery.take(0, kNone);
    EXPECT_EQ(delivery.progress().first, 3U);
    delivery.put_back(0, std::move(taken));
    EXPECT_EQ(delivery.progress().first, 0U);
    EXPECT_EQ(delivery.progress().later, (Values{1, 2}));
    EXPECT_EQ(delivery.progress().num_taken, 2U);
    EXPECT_EQ(delivery.queue_depths(), std::vector<std::uint32_t>{1});
    delivery.put(4, testing::parcel_of(4));
    delivery.put(3, testing::parcel_of(3));
    for (const std::uint64_t batch : Values{0, 3, 4}) {
      EXPECT_EQ(testing::content_of(delivery.take(0, kNone)), batch);
    }
    EXPECT_EQ(delivery.take(0, kNone).outcome, Outcome::kEnd);
    EXPECT_EQ(delivery.progress().first, 5U);
    EXPECT_EQ(delivery.progress().num_taken, 5U);
  }
}

TEST(PutBack, AfterTheEndABatchIsNotTakenEither) {
  Delivery delivery({.num_batches = 2, .depth = 2});
  ASSERT_EQ(delivery.claim(), 0U);
  delivery.put(0, testing::parcel_of(0));
  Delivery::Taken taken = delivery.take(0, kNone);
  delivery.close();
  delivery.put_back(0, std::move(taken));
  EXPECT_EQ(delivery.progress().first, 0U);
  EXPECT_EQ(delivery.progress().num_taken, 0U);
}

// Threads of one target, some of which give back what they took: each batch is kept once.
TEST(PutBack, EveryBatchIsKeptOnce) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    constexpr std::uint64_t kBatches = 500;
    Delivery delivery({.num_batches = kBatches,
                       .num_targets = 2,
                       .depth = 3,
                       .num_producers = 2,
                       .in_order = seed % 2 == 0});
    std::mutex mutex;
    Values kept;
    Threads threads;
    for (std::uint64_t producer = 0; producer < 2; ++producer) {
      threads.start([&, producer] { testing::produce(delivery, 100 * seed + producer); });
    }
    for (std::uint32_t consumer = 0; consumer < 4; ++consumer) {
      threads.start([&, consumer] {
        Random random(100 * seed + 50 + consumer);
        const std::uint32_t target = consumer % 2;
        for (Delivery::Taken taken = delivery.take(target, kLong); taken.outcome == Outcome::kBatch;
             taken = delivery.take(target, kLong)) {
          ASSERT_EQ(testing::content_of(taken), taken.batch);
          if (random.one_in(3)) {
            delivery.put_back(target, std::move(taken));
          } else {
            const std::lock_guard lock(mutex);
            kept.push_back(taken.batch);
          }
        }
      });
    }
    threads.join();
    std::ranges::sort(kept);
    // One who meets the end while another has the last batch in hand does not come back for it.
    for (std::uint32_t target = 0; target < 2; ++target) {
      for (Delivery::Taken taken = delivery.take(target, kNone); taken.outcome == Outcome::kBatch;
           taken = delivery.take(target, kNone)) {
        kept.push_back(taken.batch);
      }
    }
    std::ranges::sort(kept);
    EXPECT_EQ(kept, up_to(kBatches));
    EXPECT_EQ(delivery.progress().first, kBatches);
  }
}

}  // namespace
}  // namespace evenstride
