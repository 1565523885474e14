// What a fake driver remembers, and what all of its calls have in common.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fake_device.h"
#include "fake_driver.h"

namespace evenstride::testing {
inline constexpr CuResult kInvalidDevice = 101;
inline constexpr CuResult kInvalidImage = 200;
inline constexpr CuResult kInvalidHandle = 400;
inline constexpr CuResult kNotFound = 500;
inline constexpr CuResult kAlreadyPinned = 712;
inline constexpr CuResult kNotPinned = 713;

struct ErrorName {
  CuResult result;
  const char* name;
  const char* text;
};
inline constexpr ErrorName kErrorNames[] = {
    {kCuSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kCuOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kCuNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kCuDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kCuNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kCuNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

inline const ErrorName* name_of_error(CuResult result) {
  const auto* const found = std::ranges::find(kErrorNames, result, &ErrorName::result);
  return found == std::end(kErrorNames) ? nullptr : found;
}

inline bool is_sticky(CuResult result) {
  return result == kIllegalAddress || result == kLaunchFailed;
}

// Handles are numbers, of which no two are alike.
template <class Handle>
Handle handle_of(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

inline thread_local std::vector<int>
    current_devices;                       // The contexts of this thread; the last is current.
inline thread_local int capture_mode = 0;  // Global.

// Returns whether a call of this thread spoils a graph that is being captured.
inline bool spoils_captures(const std::string& call) {
  const std::string unsafe[] = {"cuEventQuery",        "cuEventSynchronize", "cuStreamSynchronize",
                                "cuMemAlloc",          "cuMemFree",          "cuMemHostRegister",
                                "cuMemHostUnregister", "cuModuleLoadData"};
  return call == "cuCtxSynchronize" ||
         (capture_mode != kCuCaptureRelaxed && std::ranges::find(unsafe, call) != std::end(unsafe));
}

struct FakeDriver::State {
  struct Injection {
    std::string call;
    CuResult result;
    std::size_t nth;
  };
  struct Event {
    int device;
    std::shared_ptr<const FakeStreams::Mark> mark;
  };
  struct StreamOf {
    FakeStreams::Stream stream;
    int device;
  };

  explicit State(const Options& chosen)
      : options(chosen),
        device(chosen.schedule, chosen.seed, chosen.allows_any_output),
        is_retained(static_cast<std::size_t>(chosen.num_devices)) {}

  CuResult fault(const std::string& sentence, CuResult result = kInvalidValue) {
    device.add_fault(sentence);
    return result;
  }

  // Returns the error of this call if it is to fail.
  CuResult injected(const std::string& call, bool needs_context) {
    CuResult result = needs_context ? broken : kCuSuccess;
    for (Injection& injection : injections) {
      if (injection.call == call && --injection.nth == 0) {
        result = injection.result;
      }
    }
    std::erase_if(injections, [](const Injection& injection) { return injection.nth == 0; });
    if (is_sticky(result)) {
      broken = result;
    }
    return result;
  }

  // Makes the stream that a call names. The default ones are those of the current device.
  StreamOf stream_of(CuStream named) {
    const auto number = reinterpret_cast<std::uintptr_t>(named);
    if (const auto found = streams.find(number); found != streams.end()) {
      return {.stream = number, .device = found->second};
    }
    const int current = current_devices.empty() ? 0 : current_devices.back();
    if (number > 2) {
      fault("A stream was used that does not exist.");
    }
    return {.stream = kNumDefaults * static_cast<std::uintptr_t>(current) + number / 2,
            .device = current};
  }

  // Runs all work of a device to its end.
  void finish_device(int ordinal) {
    std::vector<FakeStreams::Stream> of_device = {
        kNumDefaults * static_cast<std::uintptr_t>(ordinal),
        kNumDefaults * static_cast<std::uintptr_t>(ordinal) + 1};
    for (const auto& [stream, its_device] : streams) {
      if (its_device == ordinal) {
        of_device.push_back(stream);
      }
    }
    for (const FakeStreams::Stream stream : of_device) {
      device.streams().finish(*device.streams().add_mark(stream));
    }
  }

  static constexpr std::uintptr_t kNumDefaults = 2;  // Of a device: the legacy and the thread's.
  static constexpr std::uintptr_t kFirstHandle = 4096;

  Options options;
  pid_t process = 0;  // That has begun to use a device.
  Driver table{};
  mutable std::recursive_mutex mutex;  // Of what follows. Work of a stream may call, too.
  FakeDevice device;
  std::uintptr_t next_handle = kFirstHandle;
  std::vector<bool> is_retained;
  std::map<std::uintptr_t, int> streams;  // And their devices.
  std::map<CuEvent, Event> events;
  std::map<CuModule, int> modules;
  std::map<CuFunction, int> functions;
  std::vector<Injection> injections;
  CuResult broken = kCuSuccess;
  bool is_capturing = false;
  std::vector<std::string> calls;
};

using State = FakeDriver::State;
inline State* the_state = nullptr;

enum class Needs : std::uint8_t { kNothing, kContext };

// What all calls have in common.
template <class Body>
CuResult answer(const char* call, Needs needs, const Body& body) {
  State& state = *the_state;
  if (state.process != 0 && state.process != getpid()) {
    std::cerr << "`" << call << "` was called in a forked process." << std::endl;
    std::abort();
  }
  const std::lock_guard lock(state.mutex);
  state.calls.emplace_back(call);
  if (const CuResult result = state.injected(call, needs == Needs::kContext);
      result != kCuSuccess) {
    return result;
  }
  if (needs == Needs::kContext && current_devices.empty()) {
    return state.fault("`" + std::string(call) + "` was called without a context.",
                       kInvalidContext);
  }
  if (state.is_capturing && spoils_captures(call)) {
    return state.fault("`" + std::string(call) + "` spoiled a graph that is being captured.",
                       kCaptureUnsupported);
  }
  state.device.streams().pass_time();
  const CuResult result = body(state);
  state.device.streams().pass_time();
  return result;
}

}  // namespace evenstride::testing
