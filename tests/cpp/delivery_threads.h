// Threads that produce and consume the batches of a delivery.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "loader/delivery.h"
#include "samples.h"

namespace evenstride::testing {

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kNone{0};

// Threads that are joined when this dies.
class Threads {
 public:
  Threads() = default;
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void start(std::function<void()> body) { threads_.emplace_back(std::move(body)); }
  void join() {
    for (std::thread& thread : threads_) {
      thread.join();
    }
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

// Closes a delivery when it dies, so that the threads of a test that failed midway end.
class ClosedAtEnd {
 public:
  explicit ClosedAtEnd(Delivery& delivery) : delivery_(delivery) {}
  ~ClosedAtEnd() { delivery_.close(); }
  ClosedAtEnd(const ClosedAtEnd&) = delete;
  ClosedAtEnd& operator=(const ClosedAtEnd&) = delete;

 private:
  Delivery& delivery_;
};

inline Delivery::Parcel parcel_of(std::uint64_t batch) {
  return std::make_shared<std::uint64_t>(batch);
}

inline std::uint64_t content_of(const Delivery::Taken& taken) {
  return *std::static_pointer_cast<std::uint64_t>(taken.parcel);
}

inline void pause(Random& random) {
  if (random.one_in(4)) {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(100)));
  }
}

// Makes batches until there are none.
inline void produce(Delivery& delivery, std::uint64_t seed) {
  Random random(seed);
  while (const auto batch = delivery.claim()) {
    pause(random);
    delivery.put(*batch, parcel_of(*batch));
  }
}

// Takes what a target gets until there is no more.
inline Values consume(Delivery& delivery, std::uint32_t target, std::uint64_t seed) {
  Random random(seed);
  Values batches;
  for (;;) {
    const auto taken =
        delivery.take(target, random.one_in(2) ? kLong : std::chrono::milliseconds(1));
    if (taken.outcome == Delivery::Outcome::kBatch) {
      EXPECT_EQ(content_of(taken), taken.batch);
      batches.push_back(taken.batch);
    } else if (taken.outcome != Delivery::Outcome::kTimeout) {
      return batches;
    }
    pause(random);
  }
}

}  // namespace evenstride::testing
