#include "cuda/driver.h"

#ifndef _WIN32
#include <dlfcn.h>
#endif

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace evenstride {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kOldestVersion = 12000;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

[[noreturn]] void throw_forked() {
  throw std::runtime_error(
      "CUDA cannot be used in a process that was forked from one that uses it; start the process "
      "with the \"spawn\" method, or use the device only in the process that made it.");
}

#ifdef _WIN32
void* open_library(const char* /*name*/) {
  throw std::runtime_error("Devices are not supported on Windows.");
}

void* find_in(void* /*library*/, const char* /*name*/) {
  return nullptr;
}
#else
void* open_library(const char* name) {
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void* find_in(void* library, const char* name) {
  return dlsym(library, name);
}
#endif

// Finds functions by name. Those whose interface has changed since the first driver have a version
// in their name, and without it their old interface.
class Library {
 public:
  // Never closed: the driver has threads of its own.
  explicit Library(const char* name) : name_(name), handle_(open_library(name)) {
    if (handle_ == nullptr) {
      throw std::runtime_error("There is no CUDA driver on this machine: `" + name_ +
                               "` cannot be loaded; install the driver of the device.");
    }
  }

  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(find_in(handle_, name));
    if (function == nullptr) {
      throw std::runtime_error("The CUDA driver has no `" + std::string(name) +
                               "`; install a newer driver.");
    }
  }

 private:
  std::string name_;
  void* handle_;
};

Driver functions_of(const Library& library) {
  Driver driver{};
  library.find(driver.init, "cuInit");
  library.find(driver.get_version, "cuDriverGetVersion");
  library.find(driver.get_error_name, "cuGetErrorName");
  library.find(driver.get_error_string, "cuGetErrorString");
  library.find(driver.device_get_count, "cuDeviceGetCount");
  library.find(driver.device_get, "cuDeviceGet");
  library.find(driver.device_get_attribute, "cuDeviceGetAttribute");
  library.find(driver.primary_context_retain, "cuDevicePrimaryCtxRetain");
  library.find(driver.context_push, "cuCtxPushCurrent_v2");
  library.find(driver.context_pop, "cuCtxPopCurrent_v2");
  library.find(driver.context_synchronize, "cuCtxSynchronize");
  library.find(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  library.find(driver.stream_priority_range, "cuCtxGetStreamPriorityRange");
  library.find(driver.stream_create, "cuStreamCreateWithPriority");
  library.find(driver.stream_wait_event, "cuStreamWaitEvent");
  library.find(driver.stream_synchronize, "cuStreamSynchronize");
  library.find(driver.event_create, "cuEventCreate");
  library.find(driver.event_record, "cuEventRecord");
  library.find(driver.event_query, "cuEventQuery");
  library.find(driver.event_synchronize, "cuEventSynchronize");
  library.find(driver.memory_allocate, "cuMemAlloc_v2");
  library.find(driver.memory_free, "cuMemFree_v2");
  library.find(driver.host_register, "cuMemHostRegister_v2");
  library.find(driver.host_unregister, "cuMemHostUnregister");
  library.find(driver.copy_to_device, "cuMemcpyHtoDAsync_v2");
  library.find(driver.module_load, "cuModuleLoadData");
  library.find(driver.module_get_function, "cuModuleGetFunction");
  library.find(driver.launch, "cuLaunchKernel");
  return driver;
}

}  // namespace

Driver load_driver(const char* library) {
  const Driver driver = functions_of(Library(library));
  int version = 0;
  check(driver, driver.get_version(&version), "cuDriverGetVersion", "");
  if (version < kOldestVersion) {
    throw std::runtime_error("The CUDA driver must be of version " + version_text(kOldestVersion) +
                             " or later, but is of " + version_text(version) +
                             "; install a newer driver.");
  }
  const CuResult result = driver.init(0);
  if (result == kCuNotInitialized) {  // Somebody else in the parent, such as torch, has used it.
    throw_forked();
  }
  int num_devices = 0;
  if (result != kCuNoDevice) {
    check(driver, result, "cuInit", "");
    check(driver, driver.device_get_count(&num_devices), "cuDeviceGetCount", "");
  }
  if (num_devices == 0) {
    throw std::runtime_error(
        "The CUDA driver finds no device; see whether `nvidia-smi` lists one, and whether "
        "CUDA_VISIBLE_DEVICES hides it.");
  }
  return driver;
}

const Driver& system_driver() {
  // A process that was forked from a user does not even come to the driver, which a thread of the
  // parent may have been about to load, and have left locked.
  static std::atomic<std::uint64_t> num_uses{0};  // Calls that have not failed.
  static std::atomic<HomeProcess> user{HomeProcess()};
  if (num_uses.load(std::memory_order_acquire) > 0) {
    check_not_forked(user.load(std::memory_order_relaxed));
  } else {
    user.store(HomeProcess(), std::memory_order_relaxed);
  }
  num_uses.fetch_add(1, std::memory_order_release);
  try {
    static const Driver kDriver = load_driver(kLibrary);
    return kDriver;
  } catch (...) {
    num_uses.fetch_sub(1, std::memory_order_release);  // Others may be loading it, too.
    throw;
  }
}

void check_not_forked(const HomeProcess& home) {
  if (!home.is_here()) {
    throw_forked();
  }
}

void check(const Driver& driver, CuResult result, const char* call, const std::string& purpose) {
  if (result == kCuSuccess) {
    return;
  }
  const char* name = nullptr;
  const char* text = nullptr;
  std::string sentence = "`" + std::string(call) + "` failed";
  if (!purpose.empty()) {
    sentence += " for " + purpose;
  }
  if (driver.get_error_name(result, &name) == kCuSuccess && name != nullptr &&
      driver.get_error_string(result, &text) == kCuSuccess && text != nullptr) {
    sentence += ": " + std::string(name) + " (" + text + ").";
  } else {
    sentence += ": error " + std::to_string(result) + ".";
  }
  throw DeviceError(sentence, result);
}

}  // namespace evenstride
