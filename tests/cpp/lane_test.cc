// The way to a device: what is called, in which order, what is left as it was, and what fails how.
#include "cuda/lane.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/pinned.h"
#include "fake_driver.h"
#include "lane_setting.h"
#include "samples.h"
#include "staged.h"

namespace evenstride {
namespace {

using testing::Corpus;
using testing::FakeDriver;
using testing::FakeSchedule;
using testing::kImage;
using testing::message_of;
using testing::Ready;
using testing::record;
using testing::Setting;
using Calls = std::vector<std::string>;

constexpr const char* kExchange = "cuThreadExchangeStreamCaptureMode";

TEST(Lane, ABatchIsOneCopyOneLaunchAndOneEvent) {
  Setting setting;
  const Ready ready = setting.make_ready();
  setting.lane.reserve(std::size_t{1} << 20);
  setting.submit(ready).reset();  // Whose event is used again.
  setting.fake.forget_calls();
  const auto event = setting.submit(ready);
  EXPECT_EQ(setting.fake.calls(),
            (Calls{kExchange, "cuCtxPushCurrent", "cuMemcpyHtoDAsync", "cuLaunchKernel",
                   "cuEventRecord", "cuCtxPopCurrent", kExchange}));
  EXPECT_TRUE(event->is_done());
  EXPECT_TRUE(setting.has_arrived(ready));
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(Lane, ABatchWithoutSamplesIsAnEventAlone) {
  Setting setting;
  const Corpus::Made none = setting.corpus.make(setting.random, 0);
  setting.lane.submit(none.staged, nullptr, 0, {}, 0).reset();
  setting.fake.forget_calls();
  EXPECT_TRUE(setting.lane.submit(none.staged, nullptr, 0, {}, 1)->is_done());
  EXPECT_EQ(setting.fake.calls(),
            (Calls{kExchange, "cuCtxPushCurrent", "cuEventRecord", "cuCtxPopCurrent", kExchange,
                   kExchange, "cuCtxPushCurrent", "cuEventQuery", "cuCtxPopCurrent", kExchange}));
}

TEST(Lane, TheDeviceOfTheCallerStaysItsOwn) {
  Setting setting;
  const Driver& driver = setting.fake.table();
  CuContext other = nullptr;
  ASSERT_EQ(driver.primary_context_retain(&other, 1), kCuSuccess);
  ASSERT_EQ(driver.context_push(other), kCuSuccess);
  const Ready ready = setting.make_ready();
  const auto event = setting.submit(ready);
  const CuStream consumer = setting.fake.make_stream();
  setting.lane.make_wait(consumer, *event);
  record(setting.lane, consumer)->wait();
  EXPECT_TRUE(event->is_done());
  setting.lane.free(setting.lane.allocate(1));
  const Lane second(driver, 1, kImage);
  setting.fake.fail("cuMemcpyHtoDAsync", kCuOutOfMemory);
  EXPECT_THROW((void)setting.submit(ready), DeviceError);
  EXPECT_EQ(FakeDriver::num_contexts(), 1U);
  CuContext popped = nullptr;
  EXPECT_EQ(driver.context_pop(&popped), kCuSuccess);
  EXPECT_EQ(popped, other);
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(Lane, WorkComesAfterWhatItIsToldTo) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const Ready ready = setting.make_ready();
  const CuStream streams[] = {setting.fake.make_stream(), setting.fake.make_stream()};
  int num_done = 0;
  for (const auto& stream : streams) {
    setting.fake.enqueue(stream, [&num_done] { ++num_done; });
  }
  const auto after = setting.lane.record(streams);
  EXPECT_FALSE(after->is_done());
  const auto event = setting.submit(ready, after.get());
  EXPECT_FALSE(event->is_done());
  EXPECT_EQ(num_done, 0);
  event->wait();
  EXPECT_EQ(num_done, 2);
  EXPECT_TRUE(after->is_done());
  EXPECT_TRUE(setting.has_arrived(ready));
}

TEST(Lane, APointInSeveralStreamsIsReachedWithTheLast) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const CuStream streams[] = {setting.fake.make_stream(), setting.fake.make_stream()};
  const auto both = setting.lane.record(streams);
  for (const auto& stream : streams) {
    EXPECT_FALSE(both->is_done());
    record(setting.lane, stream)->wait();
  }
  EXPECT_TRUE(both->is_done());
  EXPECT_TRUE(setting.lane.record(std::span<const CuStream>())->is_done());
}

TEST(Lane, AConsumersStreamWaitsForABatch) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const Ready ready = setting.make_ready();
  const CuStream consumer = setting.fake.make_stream();
  setting.lane.make_wait(consumer, *setting.submit(ready));
  bool has_arrived = false;
  setting.fake.enqueue(consumer, [&] { has_arrived = setting.has_arrived(ready); });
  record(setting.lane, consumer)->wait();
  EXPECT_TRUE(has_arrived);
}

TEST(Lane, ASlabIsReadWhenItsCopyRuns) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const Ready ready = setting.make_ready();
  const auto event = setting.submit(ready);
  std::fill_n(ready.slab->memory, ready.made.staged.bytes, std::byte{0});
  event->wait();
  EXPECT_FALSE(setting.has_arrived(ready));  // So the fake tells who writes too early.
}

TEST(Lane, EventsAreUsedAgain) {
  Setting setting;
  const Ready ready = setting.make_ready();
  for (int i = 0; i < 20; ++i) {
    const auto first = setting.submit(ready);
    const auto second = setting.submit(ready, first.get());
  }
  EXPECT_EQ(setting.fake.count("cuEventCreate"), 2U);
  EXPECT_EQ(setting.fake.count("cuEventRecord"), 40U);
}

TEST(Lane, AnEventThatIsUsedAgainTooSoonStillOrdersWhatWaitsForIt) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const Ready ready = setting.make_ready();
  const CuStream consumer = setting.fake.make_stream();
  setting.lane.make_wait(consumer, *setting.submit(ready));  // The event goes back at once.
  const CuStream other = setting.fake.make_stream();
  const auto event = record(setting.lane, other);
  EXPECT_EQ(setting.fake.count("cuEventCreate"), 1U);
  bool has_arrived = false;
  setting.fake.enqueue(consumer, [&] { has_arrived = setting.has_arrived(ready); });
  event->wait();
  record(setting.lane, consumer)->wait();
  EXPECT_TRUE(has_arrived);
}

using Grid = std::pair<unsigned, unsigned>;
Grid last_grid;
const Driver* true_driver;

// Returns the grid of a batch of so many rows, in groups of which the first has so many tiles.
Grid grid_of(int num_multiprocessors, std::uint32_t num_rows, std::uint32_t tiles,
             std::uint32_t num_groups, unsigned most_blocks) {
  const FakeDriver fake({.num_multiprocessors = num_multiprocessors});
  Driver watched = fake.table();
  true_driver = &fake.table();
  watched.launch = [](CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      CuStream stream, void** parameters, void** extra) {
    last_grid = {grid_x, grid_y};
    return true_driver->launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                               shared_bytes, stream, parameters, extra);
  };
  Lane lane(watched, 0, kImage);
  EXPECT_EQ(lane.num_multiprocessors(), num_multiprocessors);
  StagedBatch batch;
  batch.bytes = num_rows * sizeof(StagedRow);
  batch.pad.num_rows = num_rows;
  batch.pad.num_groups = num_groups;
  for (std::uint32_t g = 0; g < num_groups; ++g) {
    batch.pad.groups[g].tiles = g == 0 ? tiles : 1;
  }
  const auto pool = PinnedPool::make(lane, 0, 0);
  const auto slab = pool->take(batch.bytes);
  slab->reader = lane.submit(batch, slab->memory, 64, {}, 0, most_blocks);
  EXPECT_EQ(fake.faults(), Calls{});
  return last_grid;
}

TEST(Lane, TheGridIsASmallPartOfTheDevice) {
  EXPECT_EQ(grid_of(96, 100, 10, 1, 0), Grid(12, 1));
  EXPECT_EQ(grid_of(96, 100, 10, 3, 0), Grid(4, 3));
  EXPECT_EQ(grid_of(96, 100, 10, 20, 0), Grid(1, 20));  // One block for each group at least.
  EXPECT_EQ(grid_of(1, 100, 10, 1, 0), Grid(4, 1));
  EXPECT_EQ(grid_of(39, 100, 10, 1, 0), Grid(4, 1));
  EXPECT_EQ(grid_of(40, 100, 10, 1, 0), Grid(5, 1));
}

TEST(Lane, TheGridIsAsLargeAsIsAskedFor) {
  EXPECT_EQ(grid_of(96, 100, 10, 1, 96), Grid(96, 1));
  EXPECT_EQ(grid_of(96, 100, 10, 2, 96), Grid(48, 2));
  EXPECT_EQ(grid_of(96, 100, 10, 2, 1), Grid(1, 2));
}

TEST(Lane, TheGridHasNoWarpWithoutATile) {
  EXPECT_EQ(grid_of(96, 8, 1, 1, 96), Grid(1, 1));  // Eight warps a block.
  EXPECT_EQ(grid_of(96, 9, 1, 1, 96), Grid(2, 1));
  EXPECT_EQ(grid_of(96, 4, 5, 2, 96), Grid(3, 2));
  EXPECT_EQ(grid_of(96, 1, 1, 1, 0), Grid(1, 1));
}

TEST(Lane, AnyNumberOfBlocksWritesTheSame) {
  Setting setting({.schedule = FakeSchedule::kRandom});
  for (const unsigned most_blocks : {1U, 2U, 3U, 5U, 7U, 64U, 1000U}) {
    const Ready ready = setting.make_ready(40);
    setting.submit(ready, nullptr, most_blocks)->wait();
    EXPECT_TRUE(setting.has_arrived(ready)) << most_blocks;
  }
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(Lane, ReservedMemoryNeedNotGrow) {
  Setting setting;
  setting.lane.reserve(100'000);
  EXPECT_EQ(setting.fake.num_allocated(), 1U);
  setting.lane.reserve(100);
  for (int i = 0; i < 20; ++i) {
    const Ready ready = setting.make_ready(30);
    ASSERT_LE(ready.made.staged.bytes, 100'000U);
    (void)setting.submit(ready);
  }
  EXPECT_EQ(setting.fake.count("cuMemAlloc"), 1U);
  EXPECT_EQ(setting.fake.count("cuStreamSynchronize"), 0U);
  EXPECT_EQ(setting.fake.count("cuEventSynchronize"), 0U);
}

TEST(Lane, SlabsGrowAfterTheLastOneWasRead) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const Ready small = setting.make_ready(1);
  const auto event = setting.submit(small);
  EXPECT_FALSE(event->is_done());
  Ready large = setting.make_ready(40);
  while (large.made.staged.bytes < 20'000) {
    large = setting.make_ready(40);
  }
  setting.submit(large)->wait();
  EXPECT_TRUE(setting.has_arrived(small));
  EXPECT_TRUE(setting.has_arrived(large));
  EXPECT_EQ(setting.fake.count("cuMemFree"), 1U);
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(Lane, MemoryIsFreedAfterWhatWasSubmitted) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  Ready ready = setting.make_ready();
  ready.out = setting.lane.allocate(ready.made.bytes());
  const auto event = setting.submit(ready);
  setting.lane.free(ready.out);
  EXPECT_TRUE(event->is_done());
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(Lane, MemoryIsFreedAfterAllWorkOfItsDeviceAndNoOther) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const CuAddress memory = setting.lane.allocate(1);
  int num_done = 0;
  const auto enqueue = [&](CuStream stream) {
    setting.fake.enqueue(stream, [&num_done] { ++num_done; });
  };
  enqueue(setting.fake.make_stream());
  enqueue(setting.fake.make_stream());
  enqueue(setting.lane.stream());
  enqueue(setting.fake.make_stream(1));
  setting.lane.free_after_all(memory);
  EXPECT_EQ(num_done, 3);
  EXPECT_EQ(setting.fake.num_allocated(), 0U);
}

TEST(Lane, TwoDevicesWorkSideBySide) {
  Setting setting({.schedule = FakeSchedule::kRandom});
  Lane second(setting.fake.table(), 1, kImage);
  EXPECT_EQ(second.ordinal(), 1);
  EXPECT_NE(second.stream(), setting.lane.stream());
  for (int i = 0; i < 20; ++i) {
    const Ready here = setting.make_ready();
    const Ready there = setting.make_ready();
    const auto first = setting.submit(here);
    const Event* const after = first.get();
    second.submit(there.made.staged, there.slab->memory, there.out, std::span(&after, 1), 1)
        ->wait();
    EXPECT_TRUE(first->is_done());
    EXPECT_TRUE(setting.has_arrived(here));
    EXPECT_TRUE(setting.has_arrived(there));
  }
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(Lane, ADeviceThatIsNotThereIsRefused) {
  const FakeDriver fake;
  for (const int ordinal : {-1, 2, 7}) {
    EXPECT_EQ(
        message_of([&] { const Lane lane(fake.table(), ordinal, kImage); }),
        "The ordinal of a CUDA device must be in [0, 2), but is " + std::to_string(ordinal) + ".");
  }
}

}  // namespace
}  // namespace evenstride
