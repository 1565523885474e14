// Deliveries under random loads, against counts of what was taken.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "delivery_threads.h"
#include "loader/delivery.h"
#include "samples.h"

namespace evenstride {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ClosedAtEnd;
using testing::consume;
using testing::produce;
using testing::Random;
using testing::Threads;
using testing::Values;

// Counts what several threads take, and checks what can be seen of it meanwhile.
void expect_each_batch_once(std::uint64_t seed) {
  Random random(seed);
  DeliveryOptions options{.num_batches = 200 + random.below(400),
                          .num_targets = static_cast<std::uint32_t>(random.between(1, 6)),
                          .depth = static_cast<std::uint32_t>(random.between(1, 4)),
                          .num_producers = static_cast<std::uint32_t>(random.between(1, 4)),
                          .in_order = random.one_in(2)};
  std::set<std::uint64_t> taken_before;
  for (std::uint64_t batch = 0; batch < 10; ++batch) {
    taken_before.insert(batch * random.between(1, 3));
  }
  options.taken.assign(taken_before.begin(), taken_before.end());
  const bool closes_early = random.one_in(3);
  const std::uint64_t window =
      std::uint64_t{options.num_targets} * options.depth + options.num_producers;

  Delivery delivery(options);
  std::vector<Values> taken(options.num_targets * std::size_t{2});
  {
    Threads threads;
    const ClosedAtEnd closed(delivery);
    for (std::uint64_t producer = 0; producer < options.num_producers; ++producer) {
      threads.start([&, producer] { produce(delivery, seed * 100 + producer); });
    }
    for (std::uint32_t consumer = 0; consumer < taken.size(); ++consumer) {
      threads.start([&, consumer] {
        taken[consumer] = consume(delivery, consumer / 2, seed * 100 + 50 + consumer);
      });
    }
    while (delivery.progress().first < (closes_early ? 100 : options.num_batches)) {
      const auto progress = delivery.progress();
      ASSERT_EQ(progress.num_taken, progress.first + progress.later.size());
      ASSERT_LT(progress.later.size(), window + options.taken.size());
      const auto depths = delivery.queue_depths();
      for (const std::uint32_t depth : depths) {
        ASSERT_LE(depth, options.in_order ? options.depth : window);
      }
      std::this_thread::sleep_for(microseconds(300));
    }
    if (closes_early) {
      delivery.close();
    }
    threads.join();
  }
  Values all = options.taken;
  for (const Values& batches : taken) {
    all.insert(all.end(), batches.begin(), batches.end());
  }
  all = testing::sorted(std::move(all));
  const auto progress = delivery.progress();
  Values expected = testing::indices_below(progress.first);
  expected.insert(expected.end(), progress.later.begin(), progress.later.end());
  ASSERT_EQ(all, expected);
  ASSERT_TRUE(closes_early || progress.first == options.num_batches);
}

TEST(DeliveryStress, EveryBatchIsTakenOnceWhateverThePauses) {
  const auto end = std::chrono::steady_clock::now() + milliseconds(1500);
  for (std::uint64_t seed = 1; seed < 100 && std::chrono::steady_clock::now() < end; ++seed) {
    expect_each_batch_once(seed);
    if (HasFatalFailure()) {
      FAIL() << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace evenstride
