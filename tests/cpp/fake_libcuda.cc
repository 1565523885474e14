// The fake driver as a library that can stand where the system's driver is looked for. One command
// builds it:
//   c++ -std=c++20 -O1 -fPIC -shared -Icsrc -Itests/cpp tests/cpp/fake_libcuda.cc
//       tests/cpp/fake_driver.cc -o libcuda.so.1
// The environment chooses FAKE_CUDA_SCHEDULE (prompt, lazy or random), FAKE_CUDA_SEED and
// FAKE_CUDA_DEVICES.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "fake_driver.h"

namespace evenstride::testing {
namespace {

std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

FakeDriver::Options settings() {
  FakeDriver::Options options;
  const std::string schedule = setting("FAKE_CUDA_SCHEDULE", "prompt");
  if (schedule != "prompt") {
    options.schedule = schedule == "lazy" ? FakeSchedule::kLazy : FakeSchedule::kRandom;
  }
  options.seed = std::stoull(setting("FAKE_CUDA_SEED", "0"));
  options.num_devices = std::stoi(setting("FAKE_CUDA_DEVICES", "2"));
  options.version = std::stoi(setting("FAKE_CUDA_VERSION", "13000"));
  options.allows_any_output = true;  // Such as a tensor of the host's.
  return options;
}

FakeDriver& fake() {
  static auto& kDriver = *new FakeDriver(settings());  // Kept for good, as a driver is.
  return kDriver;
}

const Driver& table() {
  return fake().table();
}

struct Events {
  std::atomic<std::size_t> waits = 0;
  std::atomic<std::size_t> records = 0;
};

Events& events_of(CuStream stream) {
  static std::mutex mutex;
  static auto& all = *new std::map<CuStream, Events>;
  const std::lock_guard lock(mutex);
  return all[stream];
}

}  // namespace
}  // namespace evenstride::testing

#define EVENSTRIDE_EXPORT extern "C" __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): The driver's names.
using namespace evenstride;  // NOLINT(google-build-using-namespace)
using evenstride::testing::events_of;
using evenstride::testing::fake;
using evenstride::testing::table;

// How many calls of a function there were, under its name in the driver's documentation.
EVENSTRIDE_EXPORT std::size_t fake_cuda_count(const char* call) {
  return fake().count(call);
}
// Runs all work of all devices to its end.
EVENSTRIDE_EXPORT void fake_cuda_finish() {
  fake().finish();
}
EVENSTRIDE_EXPORT std::size_t fake_cuda_faults() {
  return fake().faults().size();
}
// Has the nth call of a function from now on fail.
EVENSTRIDE_EXPORT void fake_cuda_fail(const char* call, CuResult result, std::size_t nth) {
  fake().fail(call, result, nth);
}
// Returns a stream of a device, for a consumer.
EVENSTRIDE_EXPORT CuStream fake_cuda_stream(int ordinal) {
  return fake().make_stream(ordinal);
}
// How many events a stream has waited for, and how many were recorded on it.
EVENSTRIDE_EXPORT std::size_t fake_cuda_waits_of(CuStream stream) {
  return events_of(stream).waits;
}
EVENSTRIDE_EXPORT std::size_t fake_cuda_records_of(CuStream stream) {
  return events_of(stream).records;
}

EVENSTRIDE_EXPORT CuResult cuInit(unsigned flags) {
  return table().init(flags);
}
EVENSTRIDE_EXPORT CuResult cuDriverGetVersion(int* version) {
  return table().get_version(version);
}
EVENSTRIDE_EXPORT CuResult cuGetErrorName(CuResult result, const char** name) {
  return table().get_error_name(result, name);
}
EVENSTRIDE_EXPORT CuResult cuGetErrorString(CuResult result, const char** text) {
  return table().get_error_string(result, text);
}
EVENSTRIDE_EXPORT CuResult cuDeviceGetCount(int* count) {
  return table().device_get_count(count);
}
EVENSTRIDE_EXPORT CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  return table().device_get(device, ordinal);
}
EVENSTRIDE_EXPORT CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice device) {
  return table().device_get_attribute(value, attribute, device);
}
EVENSTRIDE_EXPORT CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice device) {
  return table().primary_context_retain(context, device);
}
EVENSTRIDE_EXPORT CuResult cuCtxPushCurrent_v2(CuContext context) {
  return table().context_push(context);
}
EVENSTRIDE_EXPORT CuResult cuCtxPopCurrent_v2(CuContext* context) {
  return table().context_pop(context);
}
EVENSTRIDE_EXPORT CuResult cuCtxSynchronize() {
  return table().context_synchronize();
}
EVENSTRIDE_EXPORT CuResult cuThreadExchangeStreamCaptureMode(int* mode) {
  return table().exchange_capture_mode(mode);
}
EVENSTRIDE_EXPORT CuResult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return table().stream_priority_range(least, greatest);
}
EVENSTRIDE_EXPORT CuResult cuStreamCreateWithPriority(CuStream* stream, unsigned flags,
                                                      int priority) {
  return table().stream_create(stream, flags, priority);
}
EVENSTRIDE_EXPORT CuResult cuStreamWaitEvent(CuStream stream, CuEvent event, unsigned flags) {
  ++events_of(stream).waits;
  return table().stream_wait_event(stream, event, flags);
}
EVENSTRIDE_EXPORT CuResult cuStreamSynchronize(CuStream stream) {
  return table().stream_synchronize(stream);
}
EVENSTRIDE_EXPORT CuResult cuEventCreate(CuEvent* event, unsigned flags) {
  return table().event_create(event, flags);
}
EVENSTRIDE_EXPORT CuResult cuEventRecord(CuEvent event, CuStream stream) {
  ++events_of(stream).records;
  return table().event_record(event, stream);
}
EVENSTRIDE_EXPORT CuResult cuEventQuery(CuEvent event) {
  return table().event_query(event);
}
EVENSTRIDE_EXPORT CuResult cuEventSynchronize(CuEvent event) {
  return table().event_synchronize(event);
}
EVENSTRIDE_EXPORT CuResult cuMemAlloc_v2(CuAddress* address, std::size_t bytes) {
  return table().memory_allocate(address, bytes);
}
EVENSTRIDE_EXPORT CuResult cuMemFree_v2(CuAddress address) {
  return table().memory_free(address);
}
EVENSTRIDE_EXPORT CuResult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned flags) {
  return table().host_register(memory, bytes, flags);
}
EVENSTRIDE_EXPORT CuResult cuMemHostUnregister(void* memory) {
  return table().host_unregister(memory);
}
EVENSTRIDE_EXPORT CuResult cuMemcpyHtoDAsync_v2(CuAddress to, const void* from, std::size_t bytes,
                                                CuStream stream) {
  return table().copy_to_device(to, from, bytes, stream);
}
EVENSTRIDE_EXPORT CuResult cuModuleLoadData(CuModule* module, const void* image) {
  return table().module_load(module, image);
}
EVENSTRIDE_EXPORT CuResult cuModuleGetFunction(CuFunction* function, CuModule module,
                                               const char* name) {
  return table().module_get_function(function, module, name);
}
EVENSTRIDE_EXPORT CuResult cuLaunchKernel(CuFunction function, unsigned grid_x, unsigned grid_y,
                                          unsigned grid_z, unsigned block_x, unsigned block_y,
                                          unsigned block_z, unsigned shared_bytes, CuStream stream,
                                          void** parameters, void** extra) {
  return table().launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                        stream, parameters, extra);
}
// NOLINTEND(readability-identifier-naming)
