// Blocks that a consumer gives: each is used once, whoever comes first, and ends unlocked.
#include "loader/given.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "processes.h"

namespace evenstride {
namespace {

GivenBlock block_of(std::size_t capacity, std::uintptr_t address = 64) {
  return {.address = address, .capacity = capacity, .owner = std::make_shared<int>(0)};
}

// Returns 0 if there is no such block.
std::uintptr_t address_taken(GivenBlocks& given, std::size_t bytes) {
  const std::optional<GivenBlock> block = given.take(bytes);
  return block ? block->address : 0;
}

// An owner that calls a function when it ends.
template <class Function>
std::shared_ptr<void> owner_that_calls(Function function) {
  return {new int(0), [function](void* owned) {
            delete static_cast<int*>(owned);
            function();
          }};
}

TEST(Given, BlocksAreTakenInTheOrderInWhichTheyWereGiven) {
  GivenBlocks given;
  for (const std::uintptr_t address : {64U, 128U, 192U}) {
    given.put(block_of(100, address));
  }
  EXPECT_EQ(given.size(), 3U);
  for (const std::uintptr_t address : {64U, 128U, 192U}) {
    const std::optional<GivenBlock> block = given.take(100);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(block->address, address);
    EXPECT_EQ(block->capacity, 100U);
  }
  EXPECT_EQ(given.size(), 0U);
}

TEST(Given, NothingIsTakenAtOnceWhereNoBlockIs) {
  GivenBlocks given;
  EXPECT_FALSE(given.take(0).has_value());
}

TEST(Given, ABlockThatIsTooSmallStaysForASmallerBatch) {
  GivenBlocks given;
  given.put(block_of(99, 64));
  given.put(block_of(200, 128));
  given.put(block_of(100, 192));
  EXPECT_EQ(address_taken(given, 100), 128U);
  EXPECT_EQ(address_taken(given, 100), 192U);
  EXPECT_FALSE(given.take(100).has_value());
  EXPECT_EQ(given.size(), 1U);
  EXPECT_EQ(address_taken(given, 99), 64U);
}

TEST(Given, ABlockThatWasTakenKeepsItsOwnerAndOthersDoNot) {
  GivenBlocks given;
  GivenBlock block = block_of(100);
  const std::weak_ptr<void> owner = block.owner;
  given.put(std::move(block));
  std::optional<GivenBlock> taken = given.take(1);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(taken->owner, owner.lock());
  taken.reset();
  EXPECT_TRUE(owner.expired());
}

TEST(Given, ClosedTheyKeepNothingAndTakeNothingMore) {
  GivenBlocks given;
  GivenBlock before = block_of(100);
  GivenBlock after = block_of(100);
  const std::weak_ptr<void> owners[] = {before.owner, after.owner};
  given.put(std::move(before));
  given.close();
  EXPECT_TRUE(owners[0].expired());
  given.put(std::move(after));
  EXPECT_TRUE(owners[1].expired());
  EXPECT_EQ(given.size(), 0U);
  EXPECT_FALSE(given.take(1).has_value());
  given.close();
}

TEST(Given, AnOwnersEndMayComeBackToThem) {
  GivenBlocks given;
  int num_ended = 0;
  const auto owner = [&] {
    return owner_that_calls([&] {
      EXPECT_EQ(given.size(), 0U);
      ++num_ended;
    });
  };
  given.put({.address = 64, .capacity = 100, .owner = owner()});
  given.put({.address = 128, .capacity = 100, .owner = owner()});
  given.close();
  EXPECT_EQ(num_ended, 2);
  given.put({.address = 192, .capacity = 100, .owner = owner()});
  EXPECT_EQ(num_ended, 3);
}

TEST(Given, OwnersEndWithThemAndNotInAForkedProcess) {
  auto given = std::make_unique<GivenBlocks>();
  int num_ended = 0;
  given->put({.address = 64, .capacity = 100, .owner = owner_that_calls([&] { ++num_ended; })});
  EXPECT_TRUE(testing::holds_in_a_fork([&] {
    given.reset();
    return num_ended == 0;
  }));
  given.reset();
  EXPECT_EQ(num_ended, 1);
}

TEST(Given, EachBlockGoesToOneOfManyThreads) {
  constexpr int kNumBlocks = 20'000;
  constexpr int kNumThreads = 3;
  GivenBlocks given;
  std::array<std::atomic<int>, kNumBlocks> num_taken{};
  std::atomic<int> num_left{kNumBlocks};
  std::atomic<int> num_ended{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kNumBlocks; i += kNumThreads) {
        given.put({.address = static_cast<std::uintptr_t>(i),
                   .capacity = static_cast<std::size_t>(i % 5),
                   .owner = owner_that_calls([&] { ++num_ended; })});
      }
    });
    threads.emplace_back([&, t] {
      const auto most_bytes = static_cast<std::size_t>(t);
      while (num_left > 0) {
        // In the end there may be only small blocks.
        const std::size_t bytes = num_left > kNumBlocks / 2 ? most_bytes : 0;
        if (const auto block = given.take(bytes)) {
          EXPECT_GE(block->capacity, bytes);
          ++num_taken.at(block->address);
          --num_left;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::atomic<int>& times : num_taken) {
    EXPECT_EQ(times, 1);
  }
  EXPECT_EQ(num_ended, kNumBlocks);
  EXPECT_EQ(given.size(), 0U);
}

}  // namespace
}  // namespace evenstride
