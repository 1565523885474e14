// The ring of blocks: whose turn it is, what a lease's end waits for, and tensors kept too long.
#include "cuda/ring.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_driver.h"
#include "lane_setting.h"
#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::FakeDriver;
using testing::FakeSchedule;
using testing::holds_in_a_fork;
using testing::kImage;
using testing::message_of;
using Block = BlockRing::Block;
using Calls = std::vector<std::string>;

struct Device {
  FakeDriver fake{{.schedule = FakeSchedule::kLazy}};
  Lane lane{fake.table(), 0, kImage};
  CuStream consumer = fake.make_stream();
};

// Leases a block that is there, and lets go of it as a consumer does.
Block lease(BlockRing& ring, std::size_t bytes = 1) {
  std::optional<Block> block = ring.lease(bytes);
  EXPECT_TRUE(block.has_value());
  return block.value_or(Block{});
}

void release(BlockRing& ring, Block& block, std::span<const CuStream> streams = {}) {
  ring.release(block, streams);
  block.owner.reset();
}

TEST(Ring, ThereAreAsManyLeasesAsBlocks) {
  Device device;
  BlockRing ring(device.lane, 2, 5000);
  EXPECT_EQ(device.fake.num_allocated(), 2U);
  Block first = lease(ring, 5000);
  const Block second = lease(ring, 5000);
  EXPECT_NE(first.address, second.address);
  EXPECT_GE(first.capacity, 5000U);
  EXPECT_EQ(ring.lease(1), std::nullopt);
  const CuAddress address = first.address;
  release(ring, first);
  EXPECT_EQ(lease(ring).address, address);
  EXPECT_EQ(device.fake.count("cuMemAlloc"), 2U);
}

TEST(Ring, TheBlockWhoseLeaseEndedFirstIsNext) {
  Device device;
  BlockRing ring(device.lane, 3, 1);
  Block blocks[] = {lease(ring), lease(ring), lease(ring)};
  for (const std::size_t i : {1U, 2U, 0U}) {
    release(ring, blocks[i]);
  }
  for (const std::size_t i : {1U, 2U, 0U}) {
    EXPECT_EQ(lease(ring).address, blocks[i].address);
  }
}

TEST(Ring, TheNextBatchComesAfterAllStreamsOfTheLast) {
  Device device;
  BlockRing ring(device.lane, 1, 1);
  Block block = lease(ring);
  EXPECT_EQ(block.user, nullptr);
  const CuStream streams[] = {device.consumer, device.fake.make_stream()};
  int num_done = 0;
  for (const auto& stream : streams) {
    device.fake.enqueue(stream, [&num_done] { ++num_done; });
  }
  release(ring, block, streams);
  const Block next = lease(ring);
  ASSERT_NE(next.user, nullptr);
  EXPECT_FALSE(next.user->is_done());
  next.user->wait();
  EXPECT_EQ(num_done, 2);
}

TEST(Ring, ABlockThatIsTooSmallIsReplacedAfterWhatUsesIt) {
  Device device;
  BlockRing ring(device.lane, 2, 1);
  Block block = lease(ring, 100'000);
  EXPECT_GE(block.capacity, 100'000U);
  EXPECT_EQ(device.fake.num_allocated(), 2U);
  Block small = lease(ring);
  bool is_used = false;
  device.fake.enqueue(device.consumer, [&is_used] { is_used = true; });
  release(ring, small, std::span(&device.consumer, 1));
  const Block replaced = lease(ring, 5000);
  EXPECT_TRUE(is_used);
  EXPECT_EQ(replaced.user, nullptr);
  EXPECT_GE(replaced.capacity, 100'000U);  // As large as any that was asked for.
  EXPECT_EQ(device.fake.num_allocated(), 2U);
}

TEST(Ring, ABlockWhoseTensorOutlivesItsLeaseIsLeftOutUntilThatDies) {
  Device device;
  BlockRing ring(device.lane, 2, 1);
  Block block = lease(ring);
  const CuAddress kept = block.address;
  std::shared_ptr<void> tensor = block.owner;
  release(ring, block);
  for (int i = 0; i < 3; ++i) {
    Block other = lease(ring);
    EXPECT_NE(other.address, kept);
    EXPECT_FALSE(ring.lease(1).has_value());
    release(ring, other);
  }
  tensor.reset();
  EXPECT_EQ(lease(ring).address, kept);
}

TEST(Ring, WithoutMemoryForALargerBlockItsTurnStays) {
  Device device;
  BlockRing ring(device.lane, 1, 1);
  device.fake.fail("cuMemAlloc", kCuOutOfMemory);
  EXPECT_EQ(message_of<DeviceError>([&] { (void)ring.lease(5000); }),
            "`cuMemAlloc` failed for 8192 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_EQ(device.fake.num_allocated(), 0U);
  EXPECT_GE(lease(ring, 5000).capacity, 5000U);
}

TEST(Ring, WithoutMemoryAtTheStartNothingIsKept) {
  Device device;
  device.fake.fail("cuMemAlloc", kCuOutOfMemory, 3);
  EXPECT_EQ(message_of<DeviceError>([&] { const BlockRing ring(device.lane, 4, 4096); }),
            "`cuMemAlloc` failed for 4096 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_EQ(device.fake.num_allocated(), 0U);
}

TEST(Ring, ABlockStaysLeasedWhereTheEndOfItsLeaseCannotBeMarked) {
  Device device;
  BlockRing ring(device.lane, 1, 1);
  Block block = lease(ring);
  device.fake.fail("cuEventRecord", kCuOutOfMemory);
  EXPECT_THROW(ring.release(block, std::span(&device.consumer, 1)), DeviceError);
  EXPECT_EQ(ring.lease(1), std::nullopt);
  release(ring, block, std::span(&device.consumer, 1));
  EXPECT_EQ(lease(ring).address, block.address);
}

TEST(Ring, ALeaseThatIsUndoneLeavesItsBlockTheNextAfterWhatUsesIt) {
  Device device;
  BlockRing ring(device.lane, 2, 1);
  Block block = lease(ring);
  Block other = lease(ring);
  release(ring, block, std::span(&device.consumer, 1));
  release(ring, other);
  Block again = lease(ring);
  const std::shared_ptr<const Event> user = again.user;
  ASSERT_NE(user, nullptr);
  ring.cancel(std::move(again));
  const Block next = lease(ring);
  EXPECT_EQ(next.address, block.address);
  EXPECT_EQ(next.user, user);
  EXPECT_EQ(lease(ring).address, other.address);
  EXPECT_EQ(ring.lease(1), std::nullopt);
}

TEST(Ring, ALeaseThatIsOverIsNotEndedAgain) {
  constexpr const char* kOver =
      "A block must be leased for its lease to end, but its lease is over.";
  Device device;
  BlockRing ring(device.lane, 2, 1);
  Block block = lease(ring);
  release(ring, block);
  EXPECT_EQ(message_of<std::logic_error>([&] { ring.release(block, {}); }), kOver);
  EXPECT_EQ(message_of<std::logic_error>([&] { ring.cancel(block); }), kOver);
  EXPECT_EQ(message_of<std::logic_error>([&] { ring.release(Block{}, {}); }), kOver);
  EXPECT_NE(lease(ring).address, lease(ring).address);
  EXPECT_EQ(ring.lease(1), std::nullopt);
}

TEST(Ring, OneBatchThatIsTooLargeForMemoryDoesNotSpoilSmallerOnes) {
  Device device;
  BlockRing ring(device.lane, 1, 1);
  device.fake.fail("cuMemAlloc", kCuOutOfMemory);
  EXPECT_THROW((void)ring.lease(100'000), DeviceError);
  EXPECT_EQ(lease(ring, 5000).capacity, 8192U);
}

TEST(Ring, AtItsEndWhatUsesABlockIsWaitedFor) {
  Device device;
  bool is_used = false;
  {
    BlockRing ring(device.lane, 3, 1);
    Block block = lease(ring);
    device.fake.enqueue(device.consumer, [&is_used] { is_used = true; });
    release(ring, block, std::span(&device.consumer, 1));
    EXPECT_FALSE(is_used);
  }
  EXPECT_TRUE(is_used);
  EXPECT_EQ(device.fake.num_allocated(), 0U);
}

TEST(Ring, MemoryOfATensorOutlivesTheRing) {
  Device device;
  std::optional<BlockRing> ring(std::in_place, device.lane, 2, 1);
  Block leased = lease(*ring);
  Block kept = lease(*ring);
  ring->release(kept, {});
  ring.reset();
  EXPECT_EQ(device.fake.num_allocated(), 2U);
  leased.owner.reset();
  kept.owner.reset();
  EXPECT_EQ(device.fake.num_allocated(), 0U);
  EXPECT_EQ(device.fake.faults(), Calls{});
}

TEST(Ring, MemoryOfATensorIsFreedAfterWhatItsConsumerDoesWithIt) {
  for (const bool is_over : {false, true}) {
    Device device;
    std::optional<BlockRing> ring(std::in_place, device.lane, 1, 1);
    Block block = lease(*ring);
    if (is_over) {
      ring->release(block, {});
    }
    ring.reset();
    bool is_used = false;
    device.fake.enqueue(device.consumer, [&is_used] { is_used = true; });
    block.owner.reset();
    EXPECT_TRUE(is_used);
    EXPECT_EQ(device.fake.num_allocated(), 0U);
  }
}

TEST(Ring, ABlockIsReplacedAndTheRingEndsAlsoWhileAGraphIsCaptured) {
  Device device;
  std::optional<BlockRing> ring(std::in_place, device.lane, 1, 1);
  Block block = lease(*ring);
  release(*ring, block, std::span(&device.consumer, 1));
  device.fake.set_capturing(true);
  block = lease(*ring, 5000);
  release(*ring, block, std::span(&device.consumer, 1));
  ring.reset();
  EXPECT_EQ(device.fake.num_allocated(), 0U);
  EXPECT_EQ(device.fake.faults(), Calls{});
}

TEST(RingInAFork, CallsAreRefusedAndNothingIsFreed) {
  Device device;
  std::optional<BlockRing> ring(std::in_place, device.lane, 2, 1);
  Block block = lease(*ring);
  Block other = lease(*ring);
  release(*ring, other, std::span(&device.consumer, 1));
  const auto is_refused = [](const auto& use) {
    return holds_in_a_fork([&] {
      return message_of<std::runtime_error>(use).starts_with(
          "CUDA cannot be used in a process that was forked from one that uses it; ");
    });
  };
  EXPECT_TRUE(is_refused([&] { (void)ring->lease(1); }));
  EXPECT_TRUE(is_refused([&] { ring->release(block, {}); }));
  EXPECT_TRUE(holds_in_a_fork([&] {
    ring.reset();
    block.owner.reset();
    return true;
  }));
  release(*ring, block);
}

TEST(RingThreads, NoBlockIsLeasedTwice) {
  FakeDriver fake({.schedule = FakeSchedule::kRandom});
  Lane lane(fake.table(), 0, kImage);
  BlockRing ring(lane, 3, 1);
  std::mutex mutex;
  std::set<CuAddress> leased;
  int num_leases = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const CuStream consumer = fake.make_stream();
      for (int i = 0; i < 200; ++i) {
        std::optional<Block> block = ring.lease(1);
        if (!block) {
          std::this_thread::yield();
          continue;
        }
        {
          const std::lock_guard lock(mutex);
          EXPECT_TRUE(leased.insert(block->address).second);
          ++num_leases;
        }
        block->owner.reset();
        {
          const std::lock_guard lock(mutex);
          leased.erase(block->address);
        }
        ring.release(*block, std::span(&consumer, 1));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(num_leases, 200);
  EXPECT_EQ(fake.faults(), Calls{});
}

}  // namespace
}  // namespace evenstride
