// What a lane does while somebody captures a graph of a device, and every thread's calls count.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/lane.h"
#include "fake_driver.h"
#include "lane_setting.h"

namespace evenstride {
namespace {

using testing::FakeDriver;
using testing::FakeSchedule;
using testing::kImage;
using testing::Ready;
using testing::Setting;
using Calls = std::vector<std::string>;

constexpr int kGlobal = 0;
constexpr int kThreadLocal = 1;

TEST(LaneCapture, NoCallSpoilsAGraph) {
  Setting setting({.schedule = FakeSchedule::kLazy});
  setting.fake.set_capturing(true);
  const Ready ready = setting.make_ready();
  const auto event = setting.submit(ready);
  EXPECT_FALSE(event->is_done());
  event->wait();
  EXPECT_TRUE(event->is_done());
  EXPECT_TRUE(setting.has_arrived(ready));
  setting.lane.reserve(std::size_t{1} << 20);
  setting.lane.free(setting.lane.allocate(1));
  setting.lane.pin(&setting, 1);
  setting.lane.unpin(&setting);
  const Lane second(setting.fake.table(), 1, kImage);
  EXPECT_EQ(setting.fake.faults(), Calls{});
  EXPECT_EQ(FakeDriver::capture_mode(), kGlobal);
}

TEST(LaneCapture, TheModeOfTheCallerStaysItsOwn) {
  Setting setting;
  const Driver& driver = setting.fake.table();
  int mode = kThreadLocal;
  ASSERT_EQ(driver.exchange_capture_mode(&mode), kCuSuccess);
  const Ready ready = setting.make_ready();
  (void)setting.submit(ready);
  EXPECT_EQ(FakeDriver::capture_mode(), kThreadLocal);
  for (const char* const call :
       {"cuThreadExchangeStreamCaptureMode", "cuCtxPushCurrent", "cuLaunchKernel"}) {
    setting.fake.fail(call, kCuOutOfMemory);
    EXPECT_THROW((void)setting.submit(ready), DeviceError);
    EXPECT_EQ(FakeDriver::capture_mode(), kThreadLocal) << call;
    EXPECT_EQ(FakeDriver::num_contexts(), 0U) << call;
  }
  ASSERT_EQ(driver.exchange_capture_mode(&mode), kCuSuccess);
}

TEST(LaneCapture, WhatWouldSpoilAGraphIsTold) {
  Setting setting;
  setting.fake.set_capturing(true);
  const CuAddress memory = setting.lane.allocate(1);
  setting.lane.free_after_all(memory);  // The one exception.
  EXPECT_EQ(setting.fake.faults(),
            Calls{"`cuCtxSynchronize` spoiled a graph that is being captured."});
  EXPECT_EQ(setting.fake.num_allocated(), 1U);
}

}  // namespace
}  // namespace evenstride
