#include "cuda/lane.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "cuda/capacity.h"
#include "cuda/kernel_image.h"

namespace evenstride {
namespace {

constexpr unsigned kThreads = 256;  // Of a block.
constexpr unsigned kWarps = kThreads / 32;

// Returns whether a context that has once failed like this fails for good.
bool is_sticky(CuResult result) {
  constexpr CuResult kSticky[] = {
      214,  // CUDA_ERROR_ECC_UNCORRECTABLE
      220,  // CUDA_ERROR_NVLINK_UNCORRECTABLE
      226,  // CUDA_ERROR_CONTAINED
      700,  // CUDA_ERROR_ILLEGAL_ADDRESS
      702,  // CUDA_ERROR_LAUNCH_TIMEOUT
      709,  // CUDA_ERROR_CONTEXT_IS_DESTROYED
      710,  // CUDA_ERROR_ASSERT
      714,  // CUDA_ERROR_HARDWARE_STACK_ERROR
      715,  // CUDA_ERROR_ILLEGAL_INSTRUCTION
      716,  // CUDA_ERROR_MISALIGNED_ADDRESS
      717,  // CUDA_ERROR_INVALID_ADDRESS_SPACE
      718,  // CUDA_ERROR_INVALID_PC
      719,  // CUDA_ERROR_LAUNCH_FAILED
      721,  // CUDA_ERROR_TENSOR_MEMORY_LEAK
      810,  // CUDA_ERROR_MPS_CLIENT_TERMINATED
  };
  return std::ranges::find(kSticky, result) != std::end(kSticky);
}

}  // namespace

class Lane::Uncaptured {
 public:
  explicit Uncaptured(Lane& lane) : driver_(lane.driver_) {
    lane.check_usable();
    lane.check(driver_.exchange_capture_mode(&mode_), "cuThreadExchangeStreamCaptureMode");
  }
  ~Uncaptured() { (void)driver_.exchange_capture_mode(&mode_); }
  Uncaptured(const Uncaptured&) = delete;
  Uncaptured& operator=(const Uncaptured&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCuCaptureRelaxed;  // Then, what it was before.
};

class Lane::Current {
 public:
  explicit Current(Lane& lane) : uncaptured_(lane), driver_(lane.driver_) {
    lane.check(driver_.context_push(lane.context_), "cuCtxPushCurrent");
  }
  ~Current() {
    CuContext popped = nullptr;
    (void)driver_.context_pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Uncaptured uncaptured_;
  const Driver& driver_;
};

Event::~Event() {
  lane_.take_back(std::move(marks_));
}

bool Event::is_done() const {
  const Lane::Current current(lane_);
  return std::ranges::all_of(marks_, [this](CuEvent mark) {
    const CuResult result = lane_.driver_.event_query(mark);
    if (result != kCuNotReady) {
      lane_.check(result, "cuEventQuery");
    }
    return result == kCuSuccess;
  });
}

void Event::wait() const {
  const Lane::Current current(lane_);
  for (CuEvent mark : marks_) {
    lane_.check(lane_.driver_.event_synchronize(mark), "cuEventSynchronize");
  }
}

Lane::Lane(const Driver& driver, int ordinal, const void* image)
    : driver_(driver), ordinal_(ordinal) {
  int num_devices = 0;
  check(driver_.device_get_count(&num_devices), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= num_devices) {
    throw std::invalid_argument("The ordinal of a CUDA device must be in [0, " +
                                std::to_string(num_devices) + "), but is " +
                                std::to_string(ordinal) + ".");
  }
  const std::string purpose = "device " + std::to_string(ordinal);
  CuDevice device = 0;
  check(driver_.device_get(&device, ordinal), "cuDeviceGet", purpose);
  check(driver_.device_get_attribute(&num_multiprocessors_, kCuAttributeMultiprocessors, device),
        "cuDeviceGetAttribute", purpose);
  check(driver_.primary_context_retain(&context_, device), "cuDevicePrimaryCtxRetain", purpose);
  open(image);
}

void Lane::open(const void* image) {
  const Current current(*this);
  const std::string purpose = "device " + std::to_string(ordinal_);
  CuModule module = nullptr;
  check(driver_.module_load(&module, image), "cuModuleLoadData", "the kernel on " + purpose);
  check(driver_.module_get_function(&kernel_, module, "evenstride_pad"), "cuModuleGetFunction",
        "the kernel on " + purpose);
  // Last, so that none is left behind where the driver does not take the kernel.
  int least = 0;
  int greatest = 0;
  check(driver_.stream_priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange", purpose);
  check(driver_.stream_create(&stream_, kCuStreamNonBlocking, greatest),
        "cuStreamCreateWithPriority", purpose);
}

void Lane::check(CuResult result, const char* call, const std::string& purpose) {
  try {
    evenstride::check(driver_, result, call, purpose);
  } catch (const DeviceError&) {
    if (is_sticky(result)) {
      const std::lock_guard lock(failure_mutex_);
      if (failure_ == nullptr) {
        failure_ = std::current_exception();
        has_failed_.store(true, std::memory_order_release);
      }
    }
    throw;
  }
}

void Lane::check_usable() const {
  check_not_forked(home_);
  if (has_failed_.load(std::memory_order_acquire)) {
    std::rethrow_exception(failure_);
  }
}

// Records one more mark of an event. Precondition: the context is current.
void Lane::mark(Event& event, CuStream stream, const std::string& purpose) {
  event.marks_.reserve(event.marks_.size() + 1);
  CuEvent mark = nullptr;
  {
    const std::lock_guard lock(events_mutex_);
    if (!idle_events_.empty()) {
      mark = idle_events_.back();
      idle_events_.pop_back();
    } else {
      idle_events_.reserve(num_events_ + 1);  // So that taking back cannot fail.
      check(driver_.event_create(&mark, kCuEventDisableTiming | kCuEventBlockingSync),
            "cuEventCreate", purpose);
      ++num_events_;
    }
  }
  event.marks_.push_back(mark);
  check(driver_.event_record(mark, stream), "cuEventRecord", purpose);
}

// An event whose work is still to come can be recorded anew: what waits for it has already noted
// which work it waits for.
void Lane::take_back(std::vector<CuEvent> marks) noexcept {
  if (!home_.is_here()) {
    return;  // A thread that the fork left behind may hold the lock.
  }
  const std::lock_guard lock(events_mutex_);
  idle_events_.insert(idle_events_.end(), marks.begin(), marks.end());
}

std::shared_ptr<const Event> Lane::submit(const StagedBatch& batch, const std::byte* slab,
                                          CuAddress out, std::span<const Event* const> after,
                                          std::uint64_t number, unsigned most_blocks) {
  const std::string purpose = "batch " + std::to_string(number);
  const std::shared_ptr<Event> event(new Event(*this));
  const Current current(*this);
  const std::lock_guard lock(mutex_);
  for (const Event* const event_before : after) {
    if (event_before == nullptr) {
      continue;
    }
    for (CuEvent mark : event_before->marks_) {
      check(driver_.stream_wait_event(stream_, mark, 0), "cuStreamWaitEvent", purpose);
    }
  }
  if (batch.pad.num_rows > 0) {
    grow(batch.bytes, " of " + purpose);
  }
  try {
    if (batch.pad.num_rows > 0) {
      check(driver_.copy_to_device(slab_, slab, batch.bytes, stream_), "cuMemcpyHtoDAsync",
            purpose);
      launch(batch, out, purpose, most_blocks);
    }
    mark(*event, stream_, purpose);
  } catch (...) {
    // There is no event that tells when the device is done with the slab and with `out`.
    (void)driver_.stream_synchronize(stream_);
    throw;
  }
  return event;
}

void Lane::launch(const StagedBatch& batch, CuAddress out, const std::string& purpose,
                  unsigned most_blocks) {
  PadBatch pad = batch.pad;
  pad.slab = reinterpret_cast<const std::byte*>(slab_);
  pad.out = reinterpret_cast<std::byte*>(out);
  std::uint64_t most_tiles = 1;
  for (std::uint32_t g = 0; g < pad.num_groups; ++g) {
    most_tiles = std::max(most_tiles, std::uint64_t{pad.num_rows} * pad.groups[g].tiles);
  }
  if (most_blocks == 0) {
    most_blocks = std::max(4U, static_cast<unsigned>(num_multiprocessors_) / 8);
  }
  const unsigned blocks_of_group = std::max(1U, most_blocks / pad.num_groups);
  const std::uint64_t full_blocks = (most_tiles + kWarps - 1) / kWarps;  // A warp for each tile.
  const auto grid_x = static_cast<unsigned>(std::min<std::uint64_t>(blocks_of_group, full_blocks));
  void* parameters[] = {&pad};
  check(driver_.launch(kernel_, grid_x, pad.num_groups, 1, kThreads, 1, 1, 0, stream_, parameters,
                       nullptr),
        "cuLaunchKernel", purpose);
}

void Lane::make_wait(CuStream consumer, const Event& event) {
  const Current current(*this);
  for (CuEvent mark : event.marks_) {
    check(driver_.stream_wait_event(consumer, mark, 0), "cuStreamWaitEvent", "a consumer's stream");
  }
}

std::shared_ptr<const Event> Lane::record(std::span<const CuStream> consumers) {
  const std::shared_ptr<Event> event(new Event(*this));
  const Current current(*this);
  for (CuStream consumer : consumers) {
    mark(*event, consumer, "a consumer's stream");
  }
  return event;
}

void Lane::reserve(std::size_t bytes) {
  const Current current(*this);
  const std::lock_guard lock(mutex_);
  grow(bytes, "");
}

// The old memory goes last, so that smaller slabs can still be copied where there is no more.
// Preconditions: the context is current and mutex_ is held.
void Lane::grow(std::size_t bytes, const std::string& of_batch) {
  if (bytes <= slab_capacity_) {
    return;
  }
  const std::size_t capacity = capacity_for(bytes);
  CuAddress grown = 0;
  check(driver_.memory_allocate(&grown, capacity), "cuMemAlloc",
        "a slab of " + std::to_string(capacity) + " bytes" + of_batch);
  const CuAddress old = std::exchange(slab_, grown);
  slab_capacity_ = capacity;
  if (old != 0) {
    check(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
    check(driver_.memory_free(old), "cuMemFree", "a slab");
  }
}

void Lane::pin(void* memory, std::size_t bytes) {
  const Current current(*this);
  check(driver_.host_register(memory, bytes, kCuHostRegisterPortable), "cuMemHostRegister",
        std::to_string(bytes) + " bytes");
}

void Lane::unpin(void* memory) noexcept {
  try {
    const Current current(*this);
    (void)driver_.host_unregister(memory);
  } catch (const std::exception&) {
    return;
  }
}

CuAddress Lane::allocate(std::size_t bytes) {
  const Current current(*this);
  CuAddress address = 0;
  check(driver_.memory_allocate(&address, bytes), "cuMemAlloc", std::to_string(bytes) + " bytes");
  return address;
}

void Lane::free(CuAddress address) noexcept {
  try {
    const Current current(*this);
    check(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
    (void)driver_.memory_free(address);
  } catch (const std::exception&) {
    return;
  }
}

void Lane::free_after_all(CuAddress address) noexcept {
  try {
    const Current current(*this);
    check(driver_.context_synchronize(), "cuCtxSynchronize");
    (void)driver_.memory_free(address);
  } catch (const std::exception&) {
    return;
  }
}

Lane& lane_of(int ordinal) {
  const Driver& driver = system_driver();
  if (kernel_image().empty()) {
    throw std::runtime_error(
        "This build of the package has no CUDA kernel; build it where there is `nvcc`, with "
        "EVENSTRIDE_CUDA=ON.");
  }
  // Kept for good: at the end of the process, the driver may have gone before.
  static auto& mutex = *new std::mutex;
  static auto& lanes = *new std::map<int, std::unique_ptr<Lane>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Lane>& lane = lanes[ordinal];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>(driver, ordinal, kernel_image().data());
  }
  return *lane;
}

std::optional<std::string> kernel_error(int ordinal) {
  constexpr CuResult kUnfit[] = {
      200,  // CUDA_ERROR_INVALID_IMAGE
      209,  // CUDA_ERROR_NO_BINARY_FOR_GPU
      218,  // CUDA_ERROR_INVALID_PTX
      221,  // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
      222,  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
      223,  // CUDA_ERROR_JIT_COMPILATION_DISABLED
  };
  (void)system_driver();  // First, because a fork may have left the lock behind.
  // Each look at a device that is unfit would leave a reference to its context.
  static auto& mutex = *new std::mutex;
  static auto& errors = *new std::map<int, std::string>;
  const std::lock_guard lock(mutex);
  if (const auto found = errors.find(ordinal); found != errors.end()) {
    return found->second;
  }
  try {
    (void)lane_of(ordinal);
    return std::nullopt;
  } catch (const DeviceError& error) {
    if (std::ranges::find(kUnfit, error.result()) == std::end(kUnfit)) {
      throw;
    }
    return errors[ordinal] = std::string("the driver does not take the kernel: ") + error.what();
  }
}

}  // namespace evenstride
