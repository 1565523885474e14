#include "fake_driver.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fake_state.h"

namespace evenstride::testing {
namespace {

CuResult answer_error_name(CuResult result, const char** into, const char* ErrorName::* part) {
  const ErrorName* const found = name_of_error(result);
  *into = found == nullptr ? nullptr : found->*part;
  return found == nullptr ? kInvalidValue : kCuSuccess;
}

void add_device_calls(Driver& table) {
  table.init = [](unsigned flags) {
    return answer("cuInit", Needs::kNothing, [&](State& state) {
      if (flags != 0) {
        return kInvalidValue;
      }
      if (state.options.num_devices == 0) {
        return kCuNoDevice;
      }
      state.process = getpid();
      return kCuSuccess;
    });
  };
  table.get_version = [](int* version) {
    return answer("cuDriverGetVersion", Needs::kNothing, [&](State& state) {
      *version = state.options.version;
      return kCuSuccess;
    });
  };
  table.get_error_name = [](CuResult result, const char** name) {
    return answer_error_name(result, name, &ErrorName::name);
  };
  table.get_error_string = [](CuResult result, const char** text) {
    return answer_error_name(result, text, &ErrorName::text);
  };
  table.device_get_count = [](int* count) {
    return answer("cuDeviceGetCount", Needs::kNothing, [&](State& state) {
      *count = state.options.num_devices;
      return kCuSuccess;
    });
  };
  table.device_get = [](CuDevice* device, int ordinal) {
    return answer("cuDeviceGet", Needs::kNothing, [&](State& state) {
      *device = ordinal;
      return ordinal >= 0 && ordinal < state.options.num_devices ? kCuSuccess : kInvalidDevice;
    });
  };
  table.device_get_attribute = [](int* value, int attribute, CuDevice) {
    return answer("cuDeviceGetAttribute", Needs::kNothing, [&](State& state) {
      *value = state.options.num_multiprocessors;
      return attribute == kCuAttributeMultiprocessors ? kCuSuccess : kInvalidValue;
    });
  };
  table.primary_context_retain = [](CuContext* context, CuDevice device) {
    return answer("cuDevicePrimaryCtxRetain", Needs::kNothing, [&](State& state) {
      state.process = getpid();
      state.is_retained.at(static_cast<std::size_t>(device)) = true;
      *context = handle_of<CuContext>(static_cast<std::uintptr_t>(device) + 1);
      return kCuSuccess;
    });
  };
  table.context_push = [](CuContext context) {
    return answer("cuCtxPushCurrent", Needs::kNothing, [&](State& state) {
      const std::size_t device = reinterpret_cast<std::uintptr_t>(context) - 1;
      if (device >= state.is_retained.size() || !state.is_retained[device]) {
        return state.fault("A context was pushed that does not exist.", kInvalidContext);
      }
      current_devices.push_back(static_cast<int>(device));
      return kCuSuccess;
    });
  };
  table.context_pop = [](CuContext* context) {
    return answer("cuCtxPopCurrent", Needs::kNothing, [&](State& state) {
      if (current_devices.empty()) {
        return state.fault("A context was popped where there is none.", kInvalidContext);
      }
      *context = handle_of<CuContext>(static_cast<std::uintptr_t>(current_devices.back()) + 1);
      current_devices.pop_back();
      return kCuSuccess;
    });
  };
  table.context_synchronize = [] {
    return answer("cuCtxSynchronize", Needs::kContext, [&](State& state) {
      state.finish_device(current_devices.back());
      return kCuSuccess;
    });
  };
  table.exchange_capture_mode = [](int* mode) {
    return answer("cuThreadExchangeStreamCaptureMode", Needs::kNothing, [&](State&) {
      if (*mode < 0 || *mode > kCuCaptureRelaxed) {
        return kInvalidValue;
      }
      std::swap(*mode, capture_mode);
      return kCuSuccess;
    });
  };
}

void add_stream_calls(Driver& table) {
  table.stream_priority_range = [](int* least, int* greatest) {
    return answer("cuCtxGetStreamPriorityRange", Needs::kContext, [&](State&) {
      *least = 0;
      *greatest = -5;
      return kCuSuccess;
    });
  };
  table.stream_create = [](CuStream* stream, unsigned flags, int priority) {
    return answer("cuStreamCreateWithPriority", Needs::kContext, [&](State& state) {
      if (flags != kCuStreamNonBlocking || priority != -5) {
        return state.fault("A stream was made that blocks, or has a low priority.");
      }
      *stream = handle_of<CuStream>(state.next_handle);
      state.streams.emplace(state.next_handle++, current_devices.back());
      return kCuSuccess;
    });
  };
  table.stream_wait_event = [](CuStream stream, CuEvent event, unsigned flags) {
    return answer("cuStreamWaitEvent", Needs::kContext, [&](State& state) {
      const auto found = state.events.find(event);
      if (found == state.events.end() || flags != 0) {
        return state.fault("A stream was to wait for an event that does not exist.",
                           kInvalidHandle);
      }
      if (found->second.mark != nullptr) {
        state.device.streams().add_wait(state.stream_of(stream).stream, found->second.mark);
      }
      return kCuSuccess;
    });
  };
  table.stream_synchronize = [](CuStream stream) {
    return answer("cuStreamSynchronize", Needs::kContext, [&](State& state) {
      FakeStreams& streams = state.device.streams();
      streams.finish(*streams.add_mark(state.stream_of(stream).stream));
      return kCuSuccess;
    });
  };
}

void add_event_calls(Driver& table) {
  table.event_create = [](CuEvent* event, unsigned flags) {
    return answer("cuEventCreate", Needs::kContext, [&](State& state) {
      if (flags != (kCuEventBlockingSync | kCuEventDisableTiming)) {
        return state.fault("An event was made that takes the time, or the processor.");
      }
      *event = handle_of<CuEvent>(state.next_handle++);
      state.events[*event] = {.device = current_devices.back(), .mark = nullptr};
      return kCuSuccess;
    });
  };
  table.event_record = [](CuEvent event, CuStream stream) {
    return answer("cuEventRecord", Needs::kContext, [&](State& state) {
      const auto found = state.events.find(event);
      const State::StreamOf of = state.stream_of(stream);
      if (found == state.events.end() || found->second.device != of.device) {
        return state.fault("An event was recorded on a stream of another device.", kInvalidHandle);
      }
      found->second.mark = state.device.streams().add_mark(of.stream);
      return kCuSuccess;
    });
  };
  table.event_query = [](CuEvent event) {
    return answer("cuEventQuery", Needs::kContext, [&](State& state) {
      const auto found = state.events.find(event);
      if (found == state.events.end()) {
        return state.fault("An event was asked that does not exist.", kInvalidHandle);
      }
      const auto& mark = found->second.mark;
      return mark == nullptr || mark->is_done ? kCuSuccess : kCuNotReady;
    });
  };
  table.event_synchronize = [](CuEvent event) {
    return answer("cuEventSynchronize", Needs::kContext, [&](State& state) {
      const auto found = state.events.find(event);
      if (found == state.events.end()) {
        return state.fault("An event was waited for that does not exist.", kInvalidHandle);
      }
      if (found->second.mark != nullptr) {
        state.device.streams().finish(*found->second.mark);
      }
      return kCuSuccess;
    });
  };
}

void add_memory_calls(Driver& table) {
  table.memory_allocate = [](CuAddress* address, std::size_t bytes) {
    return answer("cuMemAlloc", Needs::kContext, [&](State& state) {
      if (bytes == 0) {
        return state.fault("No bytes were allocated.");
      }
      *address = state.device.memory().allocate(bytes);
      return kCuSuccess;
    });
  };
  table.memory_free = [](CuAddress address) {
    return answer("cuMemFree", Needs::kContext, [&](State& state) {
      return state.device.memory().free(address)
                 ? kCuSuccess
                 : state.fault("Memory was freed that is not allocated.");
    });
  };
  table.host_register = [](void* memory, std::size_t bytes, unsigned flags) {
    return answer("cuMemHostRegister", Needs::kContext, [&](State& state) {
      if (bytes == 0 || flags != kCuHostRegisterPortable) {
        return state.fault("No bytes were pinned, or for one device only.");
      }
      return state.device.pins().add(memory, bytes)
                 ? kCuSuccess
                 : state.fault("Memory was pinned twice.", kAlreadyPinned);
    });
  };
  table.host_unregister = [](void* memory) {
    return answer("cuMemHostUnregister", Needs::kContext, [&](State& state) {
      return state.device.pins().remove(memory)
                 ? kCuSuccess
                 : state.fault("Memory was unpinned that is not pinned.", kNotPinned);
    });
  };
  table.copy_to_device = [](CuAddress to, const void* from, std::size_t bytes, CuStream stream) {
    return answer("cuMemcpyHtoDAsync", Needs::kContext, [&](State& state) {
      return state.device.copy(state.stream_of(stream).stream, to, from, bytes) ? kCuSuccess
                                                                                : kInvalidValue;
    });
  };
}

void add_kernel_calls(Driver& table) {
  table.module_load = [](CuModule* module, const void* image) {
    return answer("cuModuleLoadData", Needs::kContext, [&](State& state) {
      *module = handle_of<CuModule>(state.next_handle++);
      state.modules[*module] = current_devices.back();
      return image == nullptr ? kInvalidImage : kCuSuccess;
    });
  };
  table.module_get_function = [](CuFunction* function, CuModule module, const char* name) {
    return answer("cuModuleGetFunction", Needs::kContext, [&](State& state) {
      *function = handle_of<CuFunction>(state.next_handle++);
      state.functions[*function] = state.modules.at(module);
      return name == std::string("evenstride_pad") ? kCuSuccess : kNotFound;
    });
  };
  table.launch = [](CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    CuStream stream, void** parameters, void** extra) {
    return answer("cuLaunchKernel", Needs::kContext, [&](State& state) {
      const auto found = state.functions.find(function);
      const State::StreamOf of = state.stream_of(stream);
      if (found == state.functions.end() || found->second != of.device) {
        return state.fault("A kernel was launched on a stream of another device.", kInvalidHandle);
      }
      if (grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != nullptr) {
        return state.fault("A kernel was launched that is unlike ours.");
      }
      const PadBatch& batch = *static_cast<const PadBatch*>(parameters[0]);
      return state.device.launch(of.stream, batch, {grid_x, grid_y, block_x}) ? kCuSuccess
                                                                              : kInvalidValue;
    });
  };
}

}  // namespace

FakeDriver::FakeDriver(Options options) : state_(std::make_unique<State>(options)) {
  add_device_calls(state_->table);
  add_stream_calls(state_->table);
  add_event_calls(state_->table);
  add_memory_calls(state_->table);
  add_kernel_calls(state_->table);
  current_devices.clear();
  the_state = state_.get();
}

FakeDriver::~FakeDriver() {
  the_state = nullptr;
}

const Driver& FakeDriver::table() const {
  return state_->table;
}

void FakeDriver::fail(const std::string& call, CuResult result, std::size_t nth) {
  const std::lock_guard lock(state_->mutex);
  state_->injections.push_back({.call = call, .result = result, .nth = nth});
}

std::vector<std::string> FakeDriver::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls;
}

std::size_t FakeDriver::count(const std::string& call) const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::size_t>(std::ranges::count(state_->calls, call));
}

void FakeDriver::forget_calls() {
  const std::lock_guard lock(state_->mutex);
  state_->calls.clear();
}

std::vector<std::string> FakeDriver::faults() const {
  const std::lock_guard lock(state_->mutex);
  return state_->device.faults();
}

std::size_t FakeDriver::num_allocated() const {
  const std::lock_guard lock(state_->mutex);
  return state_->device.memory().num_alive();
}

std::size_t FakeDriver::num_pinned() const {
  const std::lock_guard lock(state_->mutex);
  return state_->device.pins().size();
}

std::size_t FakeDriver::num_contexts() {
  return current_devices.size();
}

void FakeDriver::set_capturing(bool is_capturing) {
  const std::lock_guard lock(state_->mutex);
  state_->is_capturing = is_capturing;
}

int FakeDriver::capture_mode() {
  return testing::capture_mode;
}

CuStream FakeDriver::make_stream(int ordinal) {
  const std::lock_guard lock(state_->mutex);
  state_->streams.emplace(state_->next_handle, ordinal);
  return handle_of<CuStream>(state_->next_handle++);
}

void FakeDriver::enqueue(CuStream stream, std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  state_->device.streams().add(state_->stream_of(stream).stream, std::move(work));
  state_->device.streams().pass_time();
}

std::shared_ptr<const FakeStreams::Mark> FakeDriver::mark(CuStream stream) {
  const std::lock_guard lock(state_->mutex);
  auto mark = state_->device.streams().add_mark(state_->stream_of(stream).stream);
  state_->device.streams().pass_time();
  return mark;
}

bool FakeDriver::is_done(const FakeStreams::Mark& mark) const {
  const std::lock_guard lock(state_->mutex);
  return mark.is_done;
}

CuAddress FakeDriver::allocate(std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  return state_->device.memory().allocate(bytes);
}

void FakeDriver::read(CuAddress address, std::byte* to, std::size_t bytes) const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->device.memory().holds(address, bytes)) {
    state_->fault("Memory was read that is not allocated.");
    return;
  }
  std::copy_n(reinterpret_cast<const std::byte*>(address), bytes, to);
}

void FakeDriver::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->device.streams().finish();
}

}  // namespace evenstride::testing
