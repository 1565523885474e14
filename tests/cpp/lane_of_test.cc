// The lanes of this machine, with and without a kernel in the program.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cuda/kernel_image.h"
#include "cuda/lane.h"
#include "fake_driver.h"
#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::holds_in_a_fork;
using testing::message_of;

std::vector<unsigned char> image;

}  // namespace

// Instead of the library's own.
std::span<const unsigned char> kernel_image() noexcept {
  return image;
}

namespace {

// A process has one driver, and lanes for good, so each test runs in a fork.
template <class Body>
bool holds_with_the_fake_library(const Body& body) {
  return holds_in_a_fork([&body] {
    // Found instead of the system's, since its name is the same.
    return dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL) != nullptr && body();
  });
}

template <class Result, class... Arguments>
Result call_fake(const char* name, Arguments... arguments) {
  void* const library = dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Result (*)(Arguments...)>(dlsym(library, name))(arguments...);
}

void fail_to_load(CuResult result) {
  call_fake<void>("fake_cuda_fail", "cuModuleLoadData", result, std::size_t{1});
}

TEST(LaneOf, EachDeviceIsOne) {
  EXPECT_TRUE(holds_with_the_fake_library([] {
    image = {1};
    std::vector<const Lane*> lanes(4);
    std::vector<std::thread> threads;
    for (const Lane*& lane : lanes) {
      threads.emplace_back([&lane] { lane = &lane_of(1); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return lanes == std::vector<const Lane*>(4, &lane_of(1)) && lane_of(1).ordinal() == 1 &&
           lane_of(0).ordinal() == 0;
  }));
}

TEST(LaneOf, ADeviceThatIsNotThereIsRefusedEachTime) {
  EXPECT_TRUE(holds_with_the_fake_library([] {
    image = {1};
    const auto ask = [] { return message_of([] { (void)lane_of(2); }); };
    const std::string sentence = "The ordinal of a CUDA device must be in [0, 2), but is 2.";
    return ask() == sentence && ask() == sentence;
  }));
}

TEST(KernelError, ADriverThatDoesNotTakeTheKernelIsAskedOnce) {
  EXPECT_TRUE(holds_with_the_fake_library([] {
    image = {1};
    fail_to_load(209);
    const auto count = [](const char* call) {
      return call_fake<std::size_t>("fake_cuda_count", call);
    };
    const std::optional<std::string> sentence =
        "the driver does not take the kernel: `cuModuleLoadData` failed for the kernel on device "
        "1: error 209.";
    return kernel_error(1) == sentence && kernel_error(1) == sentence &&
           count("cuDevicePrimaryCtxRetain") == 1 && count("cuStreamCreateWithPriority") == 0 &&
           kernel_error(0) == std::nullopt && kernel_error(0) == std::nullopt;
  }));
}

TEST(KernelError, WhatElseFailsIsThrownAndAskedAgain) {
  EXPECT_TRUE(holds_with_the_fake_library([] {
    image = {1};
    fail_to_load(kCuOutOfMemory);
    return message_of<DeviceError>([] { (void)kernel_error(0); }) ==
               "`cuModuleLoadData` failed for the kernel on device 0: CUDA_ERROR_OUT_OF_MEMORY "
               "(out of memory)." &&
           kernel_error(0) == std::nullopt;
  }));
}

TEST(LaneOf, ABuildWithoutTheKernelSaysSo) {
  EXPECT_TRUE(holds_with_the_fake_library([] {
    image = {};
    return message_of<std::runtime_error>([] { (void)lane_of(0); }) ==
           "This build of the package has no CUDA kernel; build it where there is `nvcc`, with "
           "EVENSTRIDE_CUDA=ON.";
  }));
}

}  // namespace
}  // namespace evenstride
