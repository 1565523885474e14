// The memory of a device for batches: where it goes when a submission fails, when a batch goes to
// another device, and when its consumer is done.
#include "cuda/destination.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fake_driver.h"
#include "lane_setting.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::FakeSchedule;
using testing::kImage;
using testing::kLaunchOutOfResources;
using testing::message_of;
using testing::Ready;
using testing::Setting;
using Calls = std::vector<std::string>;

constexpr std::size_t kBytes = 1 << 20;  // Enough for the outputs of any batch.

// Two devices, and batches that can go to either.
struct Devices {
  Setting setting{{.schedule = FakeSchedule::kLazy}};
  Lane second_lane{setting.fake.table(), 1, kImage};

  Devices() = default;
  ~Devices() { setting.pool.reset(); }  // Whose slabs have readers on both lanes.
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  DeviceBatch make_batch() {
    Ready ready = setting.make_ready();
    made = std::move(ready.made);
    DeviceBatch batch;
    batch.number = 17;
    batch.staged = made.staged;
    batch.slab = std::move(ready.slab);
    return batch;
  }

  [[nodiscard]] bool has_arrived(const DeviceBatch& batch) {
    return setting.has_arrived({.made = made, .slab = nullptr, .out = batch.block.address});
  }

  GivenBlock make_block() {
    return {.address = setting.fake.allocate(kBytes),
            .capacity = kBytes,
            .owner = std::make_shared<int>(0)};
  }

  testing::Corpus::Made made;  // Of the last batch.
};

void expect_failure(Devices& devices, Destination& destination, DeviceBatch& batch) {
  devices.setting.fake.fail("cuLaunchKernel", kLaunchOutOfResources);
  EXPECT_THROW((void)destination.submit(batch), DeviceError);
  EXPECT_EQ(batch.destination, nullptr);
  EXPECT_EQ(batch.ready, nullptr);
  EXPECT_NE(batch.slab, nullptr);
}

TEST(Destination, ABlockOfTheRingGoesBackWhereASubmissionFails) {
  Devices devices;
  Destination ring(devices.setting.lane, 2, kBytes);
  DeviceBatch batch = devices.make_batch();
  expect_failure(devices, ring, batch);
  expect_failure(devices, ring, batch);
  DeviceBatch other = devices.make_batch();
  ASSERT_TRUE(ring.submit(batch));
  ASSERT_TRUE(ring.submit(other));
  EXPECT_NE(batch.block.address, other.block.address);
  other.ready->wait();
  EXPECT_TRUE(devices.has_arrived(other));
}

TEST(Destination, ABlockThatWentBackStillComesAfterWhatUsesIt) {
  Devices devices;
  Destination ring(devices.setting.lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(ring.submit(batch));
  const CuStream consumer = devices.setting.fake.make_stream();
  bool is_used = false;
  devices.setting.fake.enqueue(consumer, [&is_used] { is_used = true; });
  ring.release(batch, std::span(&consumer, 1));
  // Before the submission waits for it, so that nothing but the block knows of it.
  devices.setting.fake.fail("cuStreamWaitEvent", kLaunchOutOfResources);
  DeviceBatch next = devices.make_batch();
  EXPECT_THROW((void)ring.submit(next), DeviceError);
  EXPECT_FALSE(is_used);
  ASSERT_TRUE(ring.submit(next));
  next.ready->wait();
  EXPECT_TRUE(is_used);
}

TEST(Destination, AGivenBlockGoesBackWhereASubmissionFails) {
  Devices devices;
  const auto given = std::make_shared<GivenBlocks>();
  Destination destination(devices.setting.lane, given);
  const GivenBlock block = devices.make_block();
  given->put(block);
  DeviceBatch batch = devices.make_batch();
  expect_failure(devices, destination, batch);
  EXPECT_EQ(given->size(), 1U);
  ASSERT_TRUE(destination.submit(batch));
  EXPECT_EQ(batch.block.address, block.address);
  EXPECT_EQ(batch.block.owner, block.owner);
}

TEST(Destination, WithoutMemoryNothingIsDone) {
  Devices devices;
  Destination empty(devices.setting.lane, std::make_shared<GivenBlocks>());
  Destination ring(devices.second_lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  DeviceBatch other = devices.make_batch();
  ASSERT_TRUE(ring.submit(batch));
  EXPECT_FALSE(ring.submit(other));
  EXPECT_EQ(other.destination, nullptr);
  EXPECT_FALSE(empty.submit(batch));
  EXPECT_EQ(batch.destination, &ring);
  EXPECT_NE(batch.block.owner, nullptr);
}

TEST(Destination, ABatchThatWasHandedOverCanGoToAnotherDevice) {
  Devices devices;
  Destination first(devices.setting.lane, 1, kBytes);
  Destination second(devices.second_lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(first.submit(batch));
  first.hand_over(batch, devices.setting.fake.make_stream(0));
  ASSERT_TRUE(second.submit(batch));
  EXPECT_EQ(batch.destination, &second);
  batch.ready->wait();
  EXPECT_TRUE(devices.has_arrived(batch));
  EXPECT_EQ(devices.setting.fake.faults(), Calls{});
}

TEST(Destination, ABatchMayGoIntoABlockThatIsForItAlone) {
  Devices devices;
  const auto given = std::make_shared<GivenBlocks>();
  Destination destination(devices.setting.lane, given);
  DeviceBatch batch = devices.make_batch();
  EXPECT_FALSE(destination.submit(batch));
  const CuAddress address = devices.setting.lane.allocate(kBytes);
  const auto owner = std::make_shared<int>();
  destination.submit_into(batch, {.address = address, .capacity = kBytes, .owner = owner});
  EXPECT_EQ(batch.block.owner, owner);
  EXPECT_FALSE(batch.is_given);
  batch.ready->wait();
  EXPECT_TRUE(devices.has_arrived(batch));

  given->put(
      {.address = devices.setting.lane.allocate(kBytes), .capacity = kBytes, .owner = owner});
  DeviceBatch other = devices.make_batch();
  ASSERT_TRUE(destination.submit(other));
  EXPECT_TRUE(other.is_given);
}

TEST(Destination, TheSlabIsReadUntilBothDevicesHaveIt) {
  Devices devices;
  Destination first(devices.setting.lane, 1, kBytes);
  Destination second(devices.second_lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(first.submit(batch));
  const std::shared_ptr<const Event> early = batch.ready;
  ASSERT_TRUE(second.submit(batch));
  EXPECT_EQ(batch.slab->reader, batch.ready);
  EXPECT_FALSE(early->is_done());
  batch.slab->reader->wait();
  EXPECT_TRUE(early->is_done());
}

TEST(Destination, ALeaseThatWasGivenUpComesAfterItsSubmission) {
  Devices devices;
  Destination first(devices.setting.lane, 2, kBytes);
  Destination second(devices.second_lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(first.submit(batch));
  const CuAddress address = batch.block.address;
  const std::weak_ptr<void> owner = batch.block.owner;
  const std::shared_ptr<const Event> early = batch.ready;
  ASSERT_TRUE(second.submit(batch));
  EXPECT_TRUE(owner.expired());
  const CuStream stream = devices.setting.fake.make_stream();
  first.release(batch, std::span(&stream, 1));  // As its first consumer may still do.
  EXPECT_EQ(batch.destination, &second);
  DeviceBatch next = devices.make_batch();
  ASSERT_TRUE(first.submit(next));
  EXPECT_EQ(next.block.address, address);
  EXPECT_EQ(next.block.user, early);
  DeviceBatch last = devices.make_batch();
  EXPECT_TRUE(first.submit(last));
}

TEST(Destination, AGivenBlockThatWasGivenUpIsDropped) {
  Devices devices;
  const auto given = std::make_shared<GivenBlocks>();
  Destination first(devices.setting.lane, given);
  Destination second(devices.second_lane, 1, kBytes);
  given->put(devices.make_block());
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(first.submit(batch));
  const std::weak_ptr<void> owner = batch.block.owner;
  ASSERT_TRUE(second.submit(batch));
  EXPECT_TRUE(owner.expired());
  EXPECT_EQ(given->size(), 0U);
}

TEST(Destination, WhereTheSecondSubmissionFailsTheFirstStands) {
  Devices devices;
  Destination first(devices.setting.lane, 1, kBytes);
  Destination second(devices.second_lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(first.submit(batch));
  const CuAddress address = batch.block.address;
  devices.setting.fake.fail("cuLaunchKernel", kLaunchOutOfResources);
  EXPECT_THROW((void)second.submit(batch), DeviceError);
  EXPECT_EQ(batch.destination, &first);
  EXPECT_EQ(batch.block.address, address);
  batch.ready->wait();
  EXPECT_TRUE(devices.has_arrived(batch));
}

TEST(Destination, ABatchWhoseLeaseIsOverIsSubmittedNowhere) {
  Devices devices;
  Destination ring(devices.setting.lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  ASSERT_TRUE(ring.submit(batch));
  const CuStream stream = devices.setting.fake.make_stream();
  devices.setting.fake.fail("cuEventRecord", kLaunchOutOfResources);
  EXPECT_THROW(ring.release(batch, std::span(&stream, 1)), DeviceError);
  EXPECT_NE(batch.block.owner, nullptr);
  ring.release(batch, std::span(&stream, 1));
  EXPECT_EQ(batch.destination, nullptr);
  EXPECT_EQ(batch.block.owner, nullptr);
  ring.release(batch, std::span(&stream, 1));
  ASSERT_TRUE(ring.submit(batch));  // It can come again.
  batch.ready->wait();
  EXPECT_TRUE(devices.has_arrived(batch));
}

TEST(Destination, ABatchWithoutItsSlabIsRefused) {
  Devices devices;
  Destination ring(devices.setting.lane, 1, kBytes);
  DeviceBatch batch = devices.make_batch();
  batch.slab.reset();
  EXPECT_EQ(message_of<std::logic_error>([&] { (void)ring.submit(batch); }),
            "A batch must have its slab to be submitted, but batch 17 has let go of it.");
  batch = devices.make_batch();
  EXPECT_TRUE(ring.submit(batch));
}

}  // namespace
}  // namespace evenstride
