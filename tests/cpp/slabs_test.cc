// A pool of slabs: what comes back is lent again, and nobody waits for it.
#include "loader/slabs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;

constexpr std::size_t kMiB = std::size_t{1} << 20;

void expect_use(const SlabPool& pool, const SlabPool::Use& expected) {
  const SlabPool::Use use = pool.use();
  EXPECT_EQ(use.slabs, expected.slabs);
  EXPECT_EQ(use.lent, expected.lent);
  EXPECT_EQ(use.bytes, expected.bytes);
  EXPECT_EQ(use.allocations, expected.allocations);
}

TEST(Slabs, TheOneThatCameBackLastIsLentNext) {
  const auto pool = SlabPool::make(4);
  auto first = pool->take(100);
  auto second = pool->take(100);
  const std::byte* const memory = first->memory;
  EXPECT_NE(second->memory, memory);
  second.reset();
  first.reset();
  expect_use(*pool, {.slabs = 2, .lent = 0, .bytes = 8192, .allocations = 2});
  EXPECT_EQ(pool->take(4096)->memory, memory);
  expect_use(*pool, {.slabs = 2, .lent = 0, .bytes = 8192, .allocations = 2});
}

TEST(Slabs, ASlabReturnsWithTheLastCopyOfItsPointer) {
  const auto pool = SlabPool::make(4);
  auto slab = pool->take(1);
  auto copy = slab;
  slab.reset();
  EXPECT_EQ(pool->use().lent, 1U);
  copy.reset();
  EXPECT_EQ(pool->use().lent, 0U);
}

TEST(Slabs, NoneIsSmallerThanTheLeast) {
  const auto pool = SlabPool::make(2, 100'000);
  EXPECT_EQ(pool->take(1)->capacity, 131'072U);
  EXPECT_EQ(pool->take(131'072)->capacity, 131'072U);
  expect_use(*pool, {.slabs = 1, .lent = 0, .bytes = 131'072, .allocations = 1});
}

TEST(Slabs, ReservedOnesAreReady) {
  const auto pool = SlabPool::make(3, 5000);
  pool->reserve(2);
  expect_use(*pool, {.slabs = 2, .lent = 0, .bytes = 16'384, .allocations = 2});
  pool->reserve(5);
  expect_use(*pool, {.slabs = 3, .lent = 0, .bytes = 24'576, .allocations = 3});
  const auto first = pool->take(8192);
  const auto second = pool->take(1);
  expect_use(*pool, {.slabs = 3, .lent = 2, .bytes = 24'576, .allocations = 3});
}

TEST(Slabs, FewerAreReservedWhereThereIsNoMemory) {
  const auto pool = SlabPool::make(3, std::numeric_limits<std::size_t>::max());
  pool->reserve(3);
  EXPECT_EQ(pool->use().slabs, 0U);
}

TEST(Slabs, AClosedPoolKeepsNothing) {
  const auto pool = SlabPool::make(3, 5000);
  pool->reserve(2);
  auto lent = pool->take(1);
  pool->close();
  pool->close();
  expect_use(*pool, {.slabs = 1, .lent = 1, .bytes = 8192, .allocations = 2});
  lent.reset();
  expect_use(*pool, {.slabs = 0, .lent = 0, .bytes = 0, .allocations = 2});
}

TEST(Slabs, CapacitiesAreRoundedUpAndMemoryIsAligned) {
  const auto pool = SlabPool::make(0);
  const std::vector<std::pair<std::size_t, std::size_t>> cases{{0, 4096},
                                                               {4096, 4096},
                                                               {4097, 8192},
                                                               {kMiB + 1, 2 * kMiB},
                                                               {3 * kMiB, 4 * kMiB},
                                                               {32 * kMiB, 32 * kMiB},
                                                               {32 * kMiB + 1, 64 * kMiB},
                                                               {65 * kMiB, 96 * kMiB}};
  for (const auto& [bytes, capacity] : cases) {
    const auto slab = pool->take(bytes);
    EXPECT_EQ(slab->capacity, capacity) << bytes << " bytes";
    const std::size_t alignment = capacity < 2 * kMiB ? 64 : 2 * kMiB;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab->memory) % alignment, 0U) << bytes << " bytes";
  }
}

TEST(Slabs, OneThatIsTooSmallIsReplaced) {
  const auto pool = SlabPool::make(4);
  (void)pool->take(5000);
  EXPECT_EQ(pool->take(9000)->capacity, 16384U);
  expect_use(*pool, {.slabs = 1, .lent = 0, .bytes = 16384, .allocations = 2});
  EXPECT_EQ(pool->take(1)->capacity, 16384U);
}

TEST(Slabs, NothingIsAllocatedOnceWarm) {
  const auto pool = SlabPool::make(8);
  Random random(3);
  std::vector<std::shared_ptr<const Slab>> lent;
  std::size_t warm = 0;
  for (int step = 0; step < 2000; ++step) {
    lent.push_back(pool->take(random.between(60'000, 65'536)));
    std::memset(lent.back()->memory, step & 0xff, 60'000);
    if (lent.size() == 8) {
      lent.erase(lent.begin() + static_cast<std::ptrdiff_t>(random.below(8)));
    }
    if (step == 100) {
      warm = pool->use().allocations;
    }
  }
  EXPECT_EQ(warm, 8U);
  EXPECT_EQ(pool->use().allocations, warm);
}

TEST(Slabs, NoMoreThanSoManyAreKept) {
  const auto pool = SlabPool::make(2);
  std::vector<std::shared_ptr<const Slab>> lent;
  for (int i = 0; i < 5; ++i) {
    lent.push_back(pool->take(1));
  }
  expect_use(*pool, {.slabs = 5, .lent = 5, .bytes = 5 * 4096, .allocations = 5});
  lent.clear();
  expect_use(*pool, {.slabs = 2, .lent = 0, .bytes = 2 * 4096, .allocations = 5});
}

TEST(Slabs, LentSlabsOutliveTheirPool) {
  auto pool = SlabPool::make(2);
  const std::weak_ptr<SlabPool> watched = pool;
  auto slab = pool->take(10'000);
  pool.reset();
  std::memset(slab->memory, 7, slab->capacity);
  EXPECT_EQ(slab->memory[9'999], std::byte{7});
  EXPECT_FALSE(watched.expired());
  slab.reset();
  EXPECT_TRUE(watched.expired());
}

TEST(Slabs, MoreMemoryThanThereIsIsABadAllocAndLeavesThePoolAsItWas) {
  const auto pool = SlabPool::make(2);
  (void)pool->take(1);
  EXPECT_THROW((void)pool->take(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
  EXPECT_EQ(pool->use().lent, 0U);
  EXPECT_EQ(pool->take(1)->capacity, 4096U);
}

TEST(Slabs, ThreadsShareAPoolButNeverASlab) {
  const auto pool = SlabPool::make(6);
  std::atomic<int> clashes = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      Random random(seed);
      std::vector<std::shared_ptr<const Slab>> lent;
      for (int step = 0; step < 4000; ++step) {
        lent.push_back(pool->take(random.between(1, 20'000)));
        std::memset(lent.back()->memory, static_cast<int>(seed), 64);
        if (lent.size() > random.below(4)) {
          const auto* const memory = lent.front()->memory;
          clashes += !std::all_of(memory, memory + 64,
                                  [&](std::byte byte) { return byte == std::byte(seed); });
          lent.erase(lent.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(clashes, 0);
  const SlabPool::Use use = pool->use();
  EXPECT_EQ(use.lent, 0U);
  EXPECT_GE(use.slabs, 1U);
  EXPECT_LE(use.slabs, 6U);
  EXPECT_GE(use.bytes, use.slabs * 4096);
  EXPECT_LE(use.bytes, use.slabs * 32'768);
}

TEST(Slabs, AForkAmidTakesAndReturnsLeavesNobodyWaiting) {
  auto pool = SlabPool::make(4);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!is_over) {
        (void)pool->take(1);
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(testing::holds_in_a_fork([&] {
      for (int step = 0; step < 10; ++step) {
        const auto slab = pool->take(10'000);
        std::memset(slab->memory, step, slab->capacity);
      }
      pool.reset();
      return true;
    }));
  }
  is_over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace evenstride
