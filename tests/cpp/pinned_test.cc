// Pinned slabs: who gets which, who waits for the device, and what is left alone in a fork.
#include "cuda/pinned.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/capacity.h"
#include "fake_driver.h"
#include "lane_setting.h"
#include "processes.h"
#include "samples.h"
#include "scarce_memory.h"

namespace evenstride {
namespace {

using testing::eventually;
using testing::FakeDriver;
using testing::FakeSchedule;
using testing::holds_in_a_fork;
using testing::kImage;
using testing::message_of;
using testing::Random;
using testing::record;
using Calls = std::vector<std::string>;

// A device whose work goes on when a host waits.
struct Device {
  FakeDriver fake{{.schedule = FakeSchedule::kLazy}};
  Lane lane{fake.table(), 0, kImage};
  std::shared_ptr<PinnedPool> pool = PinnedPool::make(lane, 0, 0);

  // A point that the device is still to come to.
  std::shared_ptr<const Event> make_reader() { return record(lane, lane.stream()); }
};

void expect_use(const PinnedPool& pool, const PinnedPool::Use& expected) {
  const PinnedPool::Use use = pool.use();
  EXPECT_EQ(use.slabs, expected.slabs);
  EXPECT_EQ(use.lent, expected.lent);
  EXPECT_EQ(use.bytes, expected.bytes);
  EXPECT_EQ(use.allocations, expected.allocations);
  EXPECT_EQ(use.waits, expected.waits);
}

TEST(Capacity, IsEnoughAndAtMostAQuarterMore) {
  EXPECT_EQ(capacity_for(0), 4096U);
  EXPECT_EQ(capacity_for(1), 4096U);
  EXPECT_EQ(capacity_for(4096), 4096U);
  EXPECT_EQ(capacity_for(4097), 8192U);
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t bytes = random.next() >> random.between(2, 50);
    const std::size_t capacity = capacity_for(bytes);
    ASSERT_GE(capacity, bytes);
    ASSERT_EQ(capacity % 4096, 0U);
    ASSERT_LE(capacity - bytes, std::max<std::size_t>(bytes / 4, 4095)) << bytes;
  }
  EXPECT_THROW((void)capacity_for(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
}

TEST(Pinned, SlabsThatWereAskedForBeforeAreReadyAndPinned) {
  Device device;
  const auto pool = PinnedPool::make(device.lane, 3, 10'000);
  EXPECT_EQ(device.fake.num_pinned(), 3U);
  expect_use(*pool, {.slabs = 3, .lent = 0, .bytes = 36'864, .allocations = 3, .waits = 0});
  const auto slab = pool->take(10'000);
  EXPECT_GE(slab->capacity, 10'000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab->memory) % 4096, 0U);
  std::fill_n(slab->memory, slab->capacity, std::byte{1});
  expect_use(*pool, {.slabs = 3, .lent = 1, .bytes = 36'864, .allocations = 3, .waits = 0});
}

TEST(Pinned, ASlabReturnsWithTheLastCopyOfItsPointer) {
  Device device;
  auto slab = device.pool->take(1);
  auto copy = slab;
  slab.reset();
  EXPECT_EQ(device.pool->use().lent, 1U);
  copy.reset();
  EXPECT_EQ(device.pool->use().lent, 0U);
}

TEST(Pinned, TheOneThatCameBackFirstIsLentNext) {
  Device device;
  auto first = device.pool->take(1);
  auto second = device.pool->take(1);
  const std::byte* const memory = second->memory;
  second.reset();
  first.reset();
  EXPECT_EQ(device.pool->take(1)->memory, memory);
}

TEST(Pinned, OneThatNobodyReadsIsLentBeforeOneThatIsRead) {
  Device device;
  auto read = device.pool->take(1);
  auto idle = device.pool->take(1);
  const std::byte* const memory = idle->memory;
  read->reader = device.make_reader();
  read.reset();
  idle.reset();
  const auto taken = device.pool->take(1);
  EXPECT_EQ(taken->memory, memory);
  EXPECT_EQ(taken->reader, nullptr);
  expect_use(*device.pool, {.slabs = 2, .lent = 1, .bytes = 8192, .allocations = 2, .waits = 0});
}

TEST(Pinned, OneWhoseReaderIsDoneIsLentWithoutWaiting) {
  Device device;
  auto slab = device.pool->take(1);
  slab->reader = device.make_reader();
  slab.reset();
  device.fake.finish();
  slab = device.pool->take(1);
  EXPECT_EQ(slab->reader, nullptr);
  EXPECT_EQ(device.fake.count("cuEventSynchronize"), 0U);
  expect_use(*device.pool, {.slabs = 1, .lent = 1, .bytes = 4096, .allocations = 1, .waits = 0});
}

TEST(Pinned, WhereAllAreReadTheOldestReaderIsWaitedFor) {
  Device device;
  auto first = device.pool->take(1);
  auto second = device.pool->take(1);
  const std::byte* const memory = first->memory;
  const auto reader = first->reader = device.make_reader();
  const auto later = second->reader = device.make_reader();
  first.reset();
  second.reset();
  const auto taken = device.pool->take(1);
  EXPECT_EQ(taken->memory, memory);
  EXPECT_EQ(taken->reader, nullptr);
  EXPECT_TRUE(reader->is_done());
  EXPECT_FALSE(later->is_done());
  expect_use(*device.pool, {.slabs = 2, .lent = 1, .bytes = 8192, .allocations = 2, .waits = 1});
}

TEST(Pinned, WhereAllAreLentThereIsANewOne) {
  Device device;
  const auto first = device.pool->take(1);
  first->reader = device.make_reader();
  const auto second = device.pool->take(1);
  EXPECT_NE(second->memory, first->memory);
  expect_use(*device.pool, {.slabs = 2, .lent = 2, .bytes = 8192, .allocations = 2, .waits = 0});
}

TEST(Pinned, OneThatIsTooSmallIsReplacedByOneForTheLargest) {
  Device device;
  auto small = device.pool->take(1);
  auto other = device.pool->take(100'000);
  small->reader = device.make_reader();
  small.reset();
  const auto slab = device.pool->take(5000);
  EXPECT_GE(slab->capacity, 100'000U);
  EXPECT_EQ(device.fake.num_pinned(), 2U);
  expect_use(*device.pool, {.slabs = 2,
                            .lent = 2,
                            .bytes = other->capacity + slab->capacity,
                            .allocations = 3,
                            .waits = 1});
  EXPECT_EQ(device.fake.faults(), Calls{});
}

TEST(Pinned, ThePoolLivesAsLongAsItsSlabs) {
  Device device;
  auto slab = device.pool->take(1);
  slab->reader = device.make_reader();
  device.pool.reset();
  std::fill_n(slab->memory, slab->capacity, std::byte{1});
  EXPECT_EQ(device.fake.num_pinned(), 1U);
  slab.reset();
  EXPECT_EQ(device.fake.num_pinned(), 0U);
  EXPECT_EQ(device.fake.count("cuEventSynchronize"), 1U);
}

TEST(Pinned, MemoryThatCannotBePinnedIsGivenBack) {
  Device device;
  device.fake.fail("cuMemHostRegister", kCuOutOfMemory);
  EXPECT_EQ(message_of<DeviceError>([&] { (void)device.pool->take(5000); }),
            "`cuMemHostRegister` failed for 8192 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  expect_use(*device.pool, {.slabs = 0, .lent = 0, .bytes = 0, .allocations = 0, .waits = 0});
  EXPECT_THROW((void)device.pool->take(std::size_t{1} << 61), std::bad_alloc);
  EXPECT_THROW((void)device.pool->take(~std::size_t{0}), std::bad_alloc);
}

TEST(Pinned, OneBatchThatIsTooLargeForMemoryDoesNotSpoilSmallerOnes) {
  Device device;
  device.fake.fail("cuMemHostRegister", kCuOutOfMemory);
  EXPECT_THROW((void)device.pool->take(100'000), DeviceError);
  EXPECT_EQ(device.pool->take(5000)->capacity, 8192U);
}

TEST(Pinned, ASlabReturnsWithoutMemoryForIt) {
  Device device;
  std::vector<std::shared_ptr<PinnedSlab>> lent;
  for (int i = 0; i < 200; ++i) {
    lent.push_back(device.pool->take(1));
  }
  testing::num_allocations_left = 0;
  lent.clear();
  testing::num_allocations_left.reset();
  EXPECT_EQ(device.pool->use().lent, 0U);
}

TEST(Pinned, ASlabStaysInItsPlaceWhereWaitingFails) {
  Device device;
  auto slab = device.pool->take(1);
  slab->reader = device.make_reader();
  slab.reset();
  device.fake.fail("cuEventSynchronize", kCuOutOfMemory);
  EXPECT_THROW((void)device.pool->take(1), DeviceError);
  slab = device.pool->take(1);
  expect_use(*device.pool, {.slabs = 1, .lent = 1, .bytes = 4096, .allocations = 1, .waits = 2});
}

TEST(Pinned, WhereTheDriverHasGoneAPoolEndsAllTheSame) {
  Device device;
  auto slab = device.pool->take(1);
  slab->reader = device.make_reader();
  slab.reset();
  device.fake.fail("cuEventSynchronize", kCuDeinitialized);
  device.pool.reset();
  EXPECT_EQ(device.fake.num_pinned(), 1U);  // What may still be read is not unmapped.
}

TEST(PinnedInAFork, CallsAreRefusedAndSlabsAreLeftAlone) {
  Device device;
  auto slab = device.pool->take(1);
  device.pool->take(1).reset();
  slab->memory[0] = std::byte{1};
  const auto is_refused = [](const auto& use) {
    return holds_in_a_fork([&] {
      return message_of<std::runtime_error>(use).starts_with(
          "CUDA cannot be used in a process that was forked from one that uses it; ");
    });
  };
  EXPECT_TRUE(is_refused([&] { (void)device.pool->take(1); }));
  EXPECT_TRUE(is_refused([&] { (void)device.pool->use(); }));
  EXPECT_TRUE(holds_in_a_fork([&] {
    slab->memory[0] = std::byte{2};  // The pages are shared.
    slab.reset();
    device.pool.reset();
    return true;
  }));
  EXPECT_EQ(slab->memory[0], std::byte{2});
  expect_use(*device.pool, {.slabs = 2, .lent = 1, .bytes = 8192, .allocations = 2, .waits = 0});
}

TEST(PinnedInAFork, TheEndOfAPoolUnmapsNothing) {
  Device device;
  std::byte* memory = device.pool->take(1)->memory;
  memory[0] = std::byte{1};
  EXPECT_TRUE(holds_in_a_fork([&] {
    device.pool.reset();
    if (msync(memory, 4096, MS_ASYNC) != 0) {  // No memory is there.
      return false;
    }
    memory[0] = std::byte{2};
    return true;
  }));
  EXPECT_EQ(device.pool->take(1)->memory[0], std::byte{2});
}

const Driver* true_driver;
std::atomic<bool> is_inside{false};
std::atomic<bool> may_leave{false};

TEST(PinnedInAFork, ASlabEndsAlsoWhereAnotherThreadWasTakingOne) {
  const FakeDriver fake;
  true_driver = &fake.table();
  Driver slow = fake.table();
  Lane lane(slow, 0, kImage);
  const auto pool = PinnedPool::make(lane, 0, 0);
  auto slab = pool->take(1);
  pool->take(1)->reader = record(lane, lane.stream());
  slow.event_query = [](CuEvent event) {
    is_inside = true;
    while (!may_leave) {
      std::this_thread::yield();
    }
    return true_driver->event_query(event);
  };
  std::thread busy([&pool] { (void)pool->take(1); });
  ASSERT_TRUE(eventually([] { return is_inside.load(); }));
  EXPECT_TRUE(holds_in_a_fork([&slab] {
    slab.reset();
    return true;
  }));
  may_leave = true;
  busy.join();
}

TEST(PinnedThreads, NoSlabIsLentTwice) {
  FakeDriver fake({.schedule = FakeSchedule::kRandom});
  Lane lane(fake.table(), 0, kImage);
  const auto pool = PinnedPool::make(lane, 2, 1000);
  std::atomic<int> num_seen{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 200; ++i) {
        const auto slab = pool->take(random.below(20'000));
        const auto mark = static_cast<std::byte>(t);
        std::fill_n(slab->memory, slab->capacity, mark);
        std::this_thread::yield();
        const auto is_mine = [mark](std::byte byte) { return byte == mark; };
        num_seen += std::all_of(slab->memory, slab->memory + slab->capacity, is_mine) ? 1 : 0;
        slab->reader = record(lane, lane.stream());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(num_seen, 800);
  EXPECT_EQ(pool->use().lent, 0U);
  EXPECT_LE(pool->use().slabs, 4U);
  EXPECT_EQ(fake.faults(), Calls{});
}

}  // namespace
}  // namespace evenstride
