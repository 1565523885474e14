// What a lane says when the driver fails, what it still does then, and what it never does in a
// fork.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/kernel_image.h"
#include "cuda/lane.h"
#include "fake_driver.h"
#include "lane_setting.h"
#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::eventually;
using testing::FakeDriver;
using testing::FakeSchedule;
using testing::holds_in_a_fork;
using testing::kIllegalAddress;
using testing::kImage;
using testing::kLaunchFailed;
using testing::kLaunchOutOfResources;
using testing::message_of;
using testing::Ready;
using testing::record;
using testing::Setting;
using Calls = std::vector<std::string>;

constexpr const char* kForked =
    "CUDA cannot be used in a process that was forked from one that uses it; start the process "
    "with the \"spawn\" method, or use the device only in the process that made it.";

TEST(LaneFailures, NameTheCallAndTheBatch) {
  Setting setting;
  const Ready ready = setting.make_ready();
  setting.submit(ready).reset();
  const auto message = [&](const char* call, CuResult result, const Event* after = nullptr) {
    setting.fake.fail(call, result);
    return message_of<DeviceError>([&] { (void)setting.submit(ready, after); });
  };
  EXPECT_EQ(message("cuMemcpyHtoDAsync", kCuOutOfMemory),
            "`cuMemcpyHtoDAsync` failed for batch 17: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_EQ(message("cuLaunchKernel", kLaunchOutOfResources),
            "`cuLaunchKernel` failed for batch 17: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (too many "
            "resources requested for launch).");
  EXPECT_EQ(message("cuEventRecord", kCuOutOfMemory),
            "`cuEventRecord` failed for batch 17: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  const auto after = record(setting.lane, setting.lane.stream());
  EXPECT_EQ(message("cuStreamWaitEvent", kCuOutOfMemory, after.get()),
            "`cuStreamWaitEvent` failed for batch 17: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_EQ(message("cuCtxPushCurrent", kCuDeinitialized),
            "`cuCtxPushCurrent` failed: CUDA_ERROR_DEINITIALIZED (driver shutting down).");
  const auto held = setting.submit(ready);  // None of the errors lasts.
  EXPECT_EQ(message("cuEventCreate", kCuOutOfMemory),
            "`cuEventCreate` failed for batch 17: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_TRUE(setting.submit(ready)->is_done());
  EXPECT_EQ(FakeDriver::num_contexts(), 0U);
}

TEST(LaneFailures, AtTheStartNameTheDevice) {
  const auto message = [](const char* call, CuResult result) {
    FakeDriver fake;
    fake.fail(call, result);
    return message_of<DeviceError>([&] { const Lane lane(fake.table(), 1, kImage); });
  };
  EXPECT_EQ(message("cuDevicePrimaryCtxRetain", kCuOutOfMemory),
            "`cuDevicePrimaryCtxRetain` failed for device 1: CUDA_ERROR_OUT_OF_MEMORY (out of "
            "memory).");
  EXPECT_EQ(message("cuStreamCreateWithPriority", kCuOutOfMemory),
            "`cuStreamCreateWithPriority` failed for device 1: CUDA_ERROR_OUT_OF_MEMORY (out of "
            "memory).");
  EXPECT_EQ(message("cuModuleLoadData", 209),
            "`cuModuleLoadData` failed for the kernel on device 1: error 209.");
  EXPECT_EQ(FakeDriver::num_contexts(), 0U);
}

// A caller that was told of an error writes to the slab and frees the outputs.
TEST(LaneFailures, LeaveNothingUnderWay) {
  for (const char* const call : {"cuLaunchKernel", "cuEventRecord", "cuEventCreate"}) {
    Setting setting({.schedule = FakeSchedule::kLazy});
    const Ready first = setting.make_ready();
    const auto event = setting.submit(first);
    setting.fake.fail(call, kCuOutOfMemory);
    EXPECT_THROW((void)setting.submit(first), DeviceError) << call;
    EXPECT_TRUE(event->is_done()) << call;
  }
}

TEST(LaneFailures, WithoutMemoryForALargerSlabSmallerOnesStillArrive) {
  Setting setting;
  const Ready small = setting.make_ready(1);
  (void)setting.submit(small);
  Ready large = setting.make_ready(40);
  while (large.made.staged.bytes < 20'000 || large.made.staged.bytes > 32'768) {
    large = setting.make_ready(40);
  }
  const std::size_t num_allocated = setting.fake.num_allocated();
  setting.fake.fail("cuMemAlloc", kCuOutOfMemory);
  const std::string sentence = message_of<DeviceError>([&] { (void)setting.submit(large); });
  EXPECT_TRUE(sentence.starts_with("`cuMemAlloc` failed for a slab of "));
  EXPECT_TRUE(sentence.ends_with(" bytes of batch 17: CUDA_ERROR_OUT_OF_MEMORY (out of memory)."));
  setting.fake.fail("cuMemAlloc", kCuOutOfMemory);
  EXPECT_EQ(message_of<DeviceError>([&] { setting.lane.reserve(30'000); }),
            "`cuMemAlloc` failed for a slab of 32768 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of "
            "memory).");
  EXPECT_EQ(setting.fake.num_allocated(), num_allocated);
  const Ready again = setting.make_ready(1);
  (void)setting.submit(again);
  EXPECT_TRUE(setting.has_arrived(again));
  (void)setting.submit(large);
  EXPECT_TRUE(setting.has_arrived(large));
  EXPECT_EQ(setting.fake.faults(), Calls{});
}

TEST(LaneFailures, ThatADeviceDoesNotRecoverFromLast) {
  for (const char* const call :
       {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery",
        "cuEventSynchronize", "cuMemAlloc", "cuMemHostRegister"}) {
    Setting setting;
    const Ready ready = setting.make_ready();
    const auto event = setting.submit(ready);
    const auto use_all = [&] {
      (void)event->is_done();
      event->wait();
      (void)setting.submit(ready, event.get());
      (void)setting.lane.allocate(1);
      setting.lane.pin(&setting, 1);
    };
    setting.fake.fail(call, kLaunchFailed);
    const std::string sentence = message_of<DeviceError>(use_all);
    EXPECT_TRUE(sentence.starts_with("`" + std::string(call) + "` failed")) << sentence;
    EXPECT_TRUE(sentence.ends_with(": CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)."));
    setting.fake.forget_calls();
    Lane& lane = setting.lane;
    const auto expect_again = [&sentence](const auto& use) {
      EXPECT_EQ(message_of<DeviceError>(use), sentence);
    };
    expect_again([&] { (void)event->is_done(); });
    expect_again([&] { event->wait(); });
    expect_again([&] { (void)setting.submit(ready); });
    expect_again([&] { lane.make_wait(nullptr, *event); });
    expect_again([&] { (void)record(lane, nullptr); });
    expect_again([&] { lane.reserve(1); });
    expect_again([&] { lane.pin(&setting, 1); });
    expect_again([&] { (void)lane.allocate(1); });
    lane.unpin(&setting);
    lane.free(ready.out);
    lane.free_after_all(ready.out);
    EXPECT_EQ(setting.fake.calls(), Calls{});
    EXPECT_EQ(FakeDriver::num_contexts(), 0U);
  }
}

TEST(LaneFailures, OfOneDeviceAreNotThoseOfAnother) {
  Setting setting;
  Driver broken = setting.fake.table();
  broken.event_query = [](CuEvent) { return kIllegalAddress; };
  Lane second(broken, 1, kImage);
  const auto event = record(second, second.stream());
  EXPECT_THROW((void)event->is_done(), DeviceError);
  EXPECT_THROW((void)record(second, second.stream()), DeviceError);
  EXPECT_TRUE(setting.submit(setting.make_ready())->is_done());
}

TEST(LaneFailures, NotReadyIsNoError) {
  Setting setting;
  const Ready ready = setting.make_ready();
  const auto event = setting.submit(ready);
  setting.fake.fail("cuEventQuery", kCuNotReady);
  EXPECT_FALSE(event->is_done());
  EXPECT_TRUE(event->is_done());
}

TEST(LaneFailures, OfADriverThatHasGoneAreSilentWhereMemoryIsGivenBack) {
  Setting setting;
  const CuAddress memory = setting.lane.allocate(1);
  for (const char* const call :
       {"cuThreadExchangeStreamCaptureMode", "cuCtxPushCurrent", "cuMemHostUnregister",
        "cuStreamSynchronize", "cuCtxSynchronize", "cuMemFree"}) {
    setting.fake.fail(call, kCuDeinitialized);
    setting.lane.free(memory);
    setting.fake.fail(call, kCuDeinitialized);
    setting.lane.free_after_all(memory);
    setting.lane.unpin(&setting);
  }
  EXPECT_EQ(FakeDriver::num_contexts(), 0U);
}

// The fake ends a process in which a fork calls it.
TEST(LaneInAFork, EveryCallIsRefusedAndNoneReachesTheDriver) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  const Ready ready = setting.make_ready();
  auto event = setting.submit(ready);
  Lane& lane = setting.lane;
  const auto is_refused = [](const auto& use) {
    return holds_in_a_fork([&] { return message_of<std::runtime_error>(use) == kForked; });
  };
  EXPECT_TRUE(is_refused([&] { (void)event->is_done(); }));
  EXPECT_TRUE(is_refused([&] { event->wait(); }));
  EXPECT_TRUE(is_refused([&] { (void)setting.submit(ready); }));
  EXPECT_TRUE(is_refused([&] { lane.make_wait(nullptr, *event); }));
  EXPECT_TRUE(is_refused([&] { (void)record(lane, nullptr); }));
  EXPECT_TRUE(is_refused([&] { lane.reserve(1 << 20); }));
  EXPECT_TRUE(is_refused([&] { lane.pin(&setting, 1); }));
  EXPECT_TRUE(is_refused([&] { (void)lane.allocate(1); }));
  EXPECT_TRUE(holds_in_a_fork([&] {
    lane.unpin(&setting);
    lane.free(ready.out);
    lane.free_after_all(ready.out);
    event.reset();
    return true;
  }));
  event->wait();
  EXPECT_TRUE(setting.has_arrived(ready));
}

const Driver* true_driver;
std::atomic<bool> is_inside{false};
std::atomic<bool> may_leave{false};

TEST(LaneInAFork, AnEventEndsAlsoWhereAnotherThreadWasMakingOne) {
  const FakeDriver fake;
  true_driver = &fake.table();
  Driver slow = fake.table();
  Lane lane(slow, 0, kImage);
  auto event = record(lane, nullptr);
  slow.event_create = [](CuEvent* made, unsigned flags) {
    is_inside = true;
    while (!may_leave) {
      std::this_thread::yield();
    }
    return true_driver->event_create(made, flags);
  };
  std::thread busy([&lane] { (void)record(lane, nullptr); });
  ASSERT_TRUE(eventually([] { return is_inside.load(); }));
  EXPECT_TRUE(holds_in_a_fork([&event] {
    event.reset();
    return true;
  }));
  may_leave = true;
  busy.join();
}

TEST(LaneThreads, SubmitAtOnceAndEveryBatchArrives) {
  Setting setting({.schedule = FakeSchedule::kRandom});
  true_driver = &setting.fake.table();
  Driver slow = setting.fake.table();
  slow.copy_to_device = [](CuAddress to, const void* from, std::size_t bytes, CuStream stream) {
    const CuResult result = true_driver->copy_to_device(to, from, bytes, stream);
    std::this_thread::sleep_for(
        std::chrono::microseconds(100));  // Time for others to come between.
    return result;
  };
  Lane lane(slow, 0, kImage);
  constexpr int kThreads = 4;
  std::vector<std::vector<Ready>> ready(kThreads);
  for (std::vector<Ready>& of_thread : ready) {
    for (int i = 0; i < 25; ++i) {
      of_thread.push_back(setting.make_ready());
    }
  }
  std::vector<std::thread> threads;
  for (const std::vector<Ready>& of_thread : ready) {
    threads.emplace_back([&lane, &of_thread] {
      std::shared_ptr<const Event> last;
      for (const Ready& batch : of_thread) {
        const Event* const after = last.get();
        last =
            lane.submit(batch.made.staged, batch.slab->memory, batch.out, std::span(&after, 1), 0);
        (void)last->is_done();
      }
      last->wait();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<Ready>& of_thread : ready) {
    for (const Ready& batch : of_thread) {
      EXPECT_TRUE(setting.has_arrived(batch));
    }
  }
  EXPECT_EQ(setting.fake.faults(), Calls{});
  EXPECT_LE(setting.fake.count("cuEventCreate"), 2U * kThreads);
}

TEST(LaneThreads, AllHearOfAFailureThatLasts) {
  Setting setting;
  const Ready ready = setting.make_ready();
  setting.fake.fail("cuLaunchKernel", kLaunchFailed, 50);
  std::vector<std::thread> threads;
  std::atomic<int> num_told{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      try {
        for (;;) {
          (void)setting.submit(ready);
        }
      } catch (const DeviceError& error) {
        num_told += error.result() == kLaunchFailed ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(num_told, 4);
}

}  // namespace
}  // namespace evenstride
