// The driver of the machine: what is said where there is none, and what of it reaches a fork.
#include "cuda/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_driver.h"
#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::FakeDriver;
using testing::holds_in_a_fork;
using testing::kInvalidValue;
using testing::message_of;

constexpr const char* kForked =
    "CUDA cannot be used in a process that was forked from one that uses it; start the process "
    "with the \"spawn\" method, or use the device only in the process that made it.";

std::string message_of_loading(const char* library) {
  return message_of<std::runtime_error>([library] { (void)load_driver(library); });
}

// Chooses what the fake library says of itself. It asks once in a process, so this is for forks.
std::string message_of_a_library_where(const char* setting, const char* value) {
  (void)setenv(setting, value, 1);  // NOLINT(concurrency-mt-unsafe): A fork has one thread.
  return message_of_loading(FAKE_LIBCUDA);
}

TEST(Driver, AMissingLibraryIsNamed) {
  EXPECT_EQ(message_of_loading("libnowhere.so.1"),
            "There is no CUDA driver on this machine: `libnowhere.so.1` cannot be loaded; install "
            "the driver of the device.");
}

TEST(Driver, AMissingFunctionIsNamed) {
  EXPECT_EQ(message_of_loading("libm.so.6"),
            "The CUDA driver has no `cuInit`; install a newer driver.");
}

TEST(Driver, AnOldOneIsRefused) {
  EXPECT_TRUE(holds_in_a_fork([] {
    return message_of_a_library_where("FAKE_CUDA_VERSION", "11080") ==
           "The CUDA driver must be of version 12.0 or later, but is of 11.8; install a newer "
           "driver.";
  }));
}

TEST(Driver, OneWithoutADeviceIsRefused) {
  EXPECT_TRUE(holds_in_a_fork([] {
    return message_of_a_library_where("FAKE_CUDA_DEVICES", "0") ==
           "The CUDA driver finds no device; see whether `nvidia-smi` lists one, and whether "
           "CUDA_VISIBLE_DEVICES hides it.";
  }));
}

// A driver of the fake library, whose calls fail as they are told to.
class FakeLibrary {
 public:
  FakeLibrary() : handle_(dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL)) {}

  void fail(const char* call, CuResult result) const {
    function<void(const char*, CuResult, std::size_t)>("fake_cuda_fail")(call, result, 1);
  }
  [[nodiscard]] std::size_t count(const char* call) const {
    return function<std::size_t(const char*)>("fake_cuda_count")(call);
  }

 private:
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  void* handle_;
};

TEST(Driver, WhatElseFailsIsToldInTheDriversWords) {
  EXPECT_TRUE(holds_in_a_fork([] {
    FakeLibrary().fail("cuInit", kCuOutOfMemory);
    return message_of_loading(FAKE_LIBCUDA) ==
           "`cuInit` failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory).";
  }));
}

TEST(Driver, OneThatSomebodyElseUsedBeforeAForkIsRefused) {
  EXPECT_TRUE(holds_in_a_fork([] {
    FakeLibrary().fail("cuInit", kCuNotInitialized);
    return message_of_loading(FAKE_LIBCUDA) == kForked;
  }));
}

TEST(Driver, EveryFunctionIsTheLibrarysOwn) {
  EXPECT_TRUE(holds_in_a_fork([] {
    const Driver driver = load_driver(FAKE_LIBCUDA);
    CuContext context = nullptr;
    CuStream stream = nullptr;
    CuEvent event = nullptr;
    CuModule module = nullptr;
    CuFunction function = nullptr;
    CuAddress memory = 0;
    int value = 0;
    int mode = kCuCaptureRelaxed;
    bool works =
        driver.primary_context_retain(&context, 0) == kCuSuccess &&
        driver.context_push(context) == kCuSuccess &&
        driver.stream_create(&stream, kCuStreamNonBlocking, -5) == kCuSuccess &&
        driver.event_create(&event, kCuEventBlockingSync | kCuEventDisableTiming) == kCuSuccess &&
        driver.event_record(event, stream) == kCuSuccess &&
        driver.stream_wait_event(stream, event, 0) == kCuSuccess &&
        driver.stream_synchronize(stream) == kCuSuccess &&
        driver.event_query(event) == kCuSuccess && driver.event_synchronize(event) == kCuSuccess &&
        driver.memory_allocate(&memory, 1) == kCuSuccess &&
        driver.memory_free(memory) == kCuSuccess &&
        driver.host_register(&memory, 1, kCuHostRegisterPortable) == kCuSuccess &&
        driver.host_unregister(&memory) == kCuSuccess &&
        driver.module_load(&module, &memory) == kCuSuccess &&
        driver.module_get_function(&function, module, "evenstride_pad") == kCuSuccess &&
        driver.copy_to_device(memory, &memory, 1, stream) == kInvalidValue &&
        driver.launch(function, 0, 0, 0, 0, 0, 0, 0, stream, nullptr, nullptr) == kInvalidValue &&
        driver.stream_priority_range(&value, &value) == kCuSuccess &&
        driver.device_get(&value, 0) == kCuSuccess &&
        driver.device_get_attribute(&value, kCuAttributeMultiprocessors, 0) == kCuSuccess &&
        driver.context_synchronize() == kCuSuccess &&
        driver.exchange_capture_mode(&mode) == kCuSuccess && mode == 0 &&
        driver.context_pop(&context) == kCuSuccess;
    const FakeLibrary library;
    for (const char* const call : {"cuInit",
                                   "cuDriverGetVersion",
                                   "cuDeviceGetCount",
                                   "cuDevicePrimaryCtxRetain",
                                   "cuCtxPushCurrent",
                                   "cuCtxPopCurrent",
                                   "cuCtxSynchronize",
                                   "cuThreadExchangeStreamCaptureMode",
                                   "cuStreamCreateWithPriority",
                                   "cuStreamWaitEvent",
                                   "cuStreamSynchronize",
                                   "cuEventCreate",
                                   "cuEventRecord",
                                   "cuEventQuery",
                                   "cuEventSynchronize",
                                   "cuMemAlloc",
                                   "cuMemFree",
                                   "cuMemHostRegister",
                                   "cuMemHostUnregister",
                                   "cuModuleLoadData",
                                   "cuModuleGetFunction",
                                   "cuMemcpyHtoDAsync",
                                   "cuLaunchKernel",
                                   "cuCtxGetStreamPriorityRange",
                                   "cuDeviceGet",
                                   "cuDeviceGetAttribute"}) {
      works = works && library.count(call) == 1;
    }
    return works;
  }));
}

// Each of these runs in a fork too: a process has one driver, which it loads once.
TEST(SystemDriver, IsLoadedOnce) {
  EXPECT_TRUE(holds_in_a_fork([] {
    const FakeLibrary library;  // Found instead of the system's, since its name is the same.
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] { (void)system_driver(); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return library.count("cuInit") == 1 && &system_driver() == &system_driver();
  }));
}

TEST(SystemDriver, IsNotCalledInAForkOfItsUser) {
  EXPECT_TRUE(holds_in_a_fork([] {
    const FakeLibrary library;
    (void)system_driver();
    return holds_in_a_fork(
        [] { return message_of<std::runtime_error>([] { (void)system_driver(); }) == kForked; });
  }));
}

TEST(SystemDriver, IsThereInAForkOfAProcessThatNeverAsked) {
  EXPECT_TRUE(holds_in_a_fork([] {
    const FakeLibrary library;
    return holds_in_a_fork([] { return &system_driver() != nullptr; });
  }));
}

TEST(SystemDriver, CanBeAskedAgainAfterAFailureAlsoInAFork) {
  EXPECT_TRUE(holds_in_a_fork([] {
    const FakeLibrary library;
    library.fail("cuInit", kCuOutOfMemory);
    const auto ask = [] { return message_of<std::runtime_error>([] { (void)system_driver(); }); };
    return ask() == "`cuInit` failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)." &&
           holds_in_a_fork([&] { return ask() == "nothing was thrown"; }) &&
           ask() == "nothing was thrown";
  }));
}

TEST(SystemDriver, IsNotCalledInAForkAlsoWhereOneOfSeveralThreadsFailed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets a forked process start no threads.";
#endif
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(holds_in_a_fork([] {
      const FakeLibrary library;
      library.fail("cuInit", kCuOutOfMemory);
      std::barrier start(8);
      std::vector<std::thread> threads;
      for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&start] {
          start.arrive_and_wait();
          (void)message_of<std::runtime_error>([] { (void)system_driver(); });
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      return holds_in_a_fork(
          [] { return message_of<std::runtime_error>([] { (void)system_driver(); }) == kForked; });
    }));
  }
}

TEST(Check, NamesCallPurposeAndError) {
  const FakeDriver fake;
  const auto message = [&fake](CuResult result, const std::string& purpose) {
    return message_of<DeviceError>([&] { check(fake.table(), result, "cuMemAlloc", purpose); });
  };
  EXPECT_EQ(message(kCuSuccess, "batch 17"), "nothing was thrown");
  EXPECT_EQ(message(kCuOutOfMemory, "batch 17"),
            "`cuMemAlloc` failed for batch 17: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_EQ(message(kCuOutOfMemory, ""),
            "`cuMemAlloc` failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory).");
  EXPECT_EQ(message(12345, ""), "`cuMemAlloc` failed: error 12345.");
}

}  // namespace
}  // namespace evenstride
