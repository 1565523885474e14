// The part of the CUDA driver's interface that is used, as a table of functions.
//
// The driver is loaded when it is first asked for, so that the package works without one. Types and
// values are those of the driver's binary interface, which does not change; see the CUDA Driver API
// reference. A table of other functions stands in for it in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "loader/process.h"

namespace evenstride {

using CuResult = int;
using CuDevice = int;
using CuContext = struct CuContextTag*;
using CuModule = struct CuModuleTag*;
using CuFunction = struct CuFunctionTag*;
using CuStream = struct CuStreamTag*;
using CuEvent = struct CuEventTag*;
using CuAddress = std::uint64_t;  // Of a device's memory.

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNotInitialized = 3;
inline constexpr CuResult kCuDeinitialized = 4;
inline constexpr CuResult kCuNoDevice = 100;
inline constexpr CuResult kCuNotReady = 600;

inline constexpr unsigned kCuStreamNonBlocking = 1;
inline constexpr unsigned kCuEventBlockingSync = 1;
inline constexpr unsigned kCuEventDisableTiming = 2;
inline constexpr unsigned kCuHostRegisterPortable = 1;
inline constexpr int kCuAttributeMultiprocessors = 16;
inline constexpr int kCuCaptureRelaxed = 2;

struct Driver {
  CuResult (*init)(unsigned flags);
  CuResult (*get_version)(int* version);
  CuResult (*get_error_name)(CuResult result, const char** name);
  CuResult (*get_error_string)(CuResult result, const char** text);
  CuResult (*device_get_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*device_get_attribute)(int* value, int attribute, CuDevice device);
  CuResult (*primary_context_retain)(CuContext* context, CuDevice device);
  CuResult (*context_push)(CuContext context);
  CuResult (*context_pop)(CuContext* context);
  CuResult (*context_synchronize)();
  CuResult (*exchange_capture_mode)(int* mode);
  CuResult (*stream_priority_range)(int* least, int* greatest);
  CuResult (*stream_create)(CuStream* stream, unsigned flags, int priority);
  CuResult (*stream_wait_event)(CuStream stream, CuEvent event, unsigned flags);
  CuResult (*stream_synchronize)(CuStream stream);
  CuResult (*event_create)(CuEvent* event, unsigned flags);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_query)(CuEvent event);
  CuResult (*event_synchronize)(CuEvent event);
  CuResult (*memory_allocate)(CuAddress* address, std::size_t bytes);
  CuResult (*memory_free)(CuAddress address);
  CuResult (*host_register)(void* memory, std::size_t bytes, unsigned flags);
  CuResult (*host_unregister)(void* memory);
  CuResult (*copy_to_device)(CuAddress to, const void* from, std::size_t bytes, CuStream stream);
  CuResult (*module_load)(CuModule* module, const void* image);
  CuResult (*module_get_function)(CuFunction* function, CuModule module, const char* name);
  CuResult (*launch)(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                     CuStream stream, void** parameters, void** extra);
};

// A call of the driver that failed. Its text names the call, what it was for, and the error.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(const std::string& text, CuResult result)
      : std::runtime_error(text), result_(result) {}
  [[nodiscard]] CuResult result() const noexcept { return result_; }

 private:
  CuResult result_;
};

// Returns the functions of a driver's library, initialised. Throws std::runtime_error, which says
// what is missing, if the library or one of its functions is, if it is too old, if it finds no
// device, or if this process was forked from one that has used it.
[[nodiscard]] Driver load_driver(const char* library);

// Returns the driver of this machine, loaded once. Throws what load_driver does. A fork inherits no
// driver: in a process that was forked from one that called this, no call of a driver is made.
// Thread-safe.
[[nodiscard]] const Driver& system_driver();

// Throws std::runtime_error, which names the remedy, in a process that was forked from `home`.
void check_not_forked(const HomeProcess& home);

// Throws DeviceError, "`cuMemAlloc` failed for ...: CUDA_ERROR_OUT_OF_MEMORY (out of memory).", if
// the result is not kCuSuccess. `purpose` may be empty.
void check(const Driver& driver, CuResult result, const char* call, const std::string& purpose);

}  // namespace evenstride
