// The way to one device: a stream of our own, the kernel, and memory for the slab that it reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "cuda/staging.h"
#include "loader/process.h"

namespace evenstride {

class Lane;

// A point that work has to come to, in a stream or in several. What marks it goes back to its lane,
// for another use, when the last owner lets go of it. Thread-safe.
class Event {
 public:
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Returns whether the work has come there. Throws DeviceError.
  [[nodiscard]] bool is_done() const;
  // Waits, without the processor, until it has. Throws DeviceError.
  void wait() const;

 private:
  friend class Lane;
  explicit Event(Lane& lane) : lane_(lane) {}

  Lane& lane_;
  std::vector<CuEvent> marks_;
};

// Submits batches to one device, in the primary context that torch uses too, on a non-blocking
// stream of high priority. Every call leaves the caller's device and context as they were, and a
// graph that another thread captures meanwhile.
//
// A lane is made once for a device and lives as long as the process: nothing is freed at its end.
// After an error that the device does not recover from, every call throws it again. In a process
// that was forked since, every call throws std::runtime_error and none reaches the driver.
// Thread-safe.
class Lane {
 public:
  // `image` is the kernel's, a fat binary. Throws std::invalid_argument if the device has no such
  // ordinal, and DeviceError.
  Lane(const Driver& driver, int ordinal, const void* image);

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CuStream stream() const noexcept { return stream_; }
  [[nodiscard]] int num_multiprocessors() const noexcept { return num_multiprocessors_; }

  // Copies a slab to the device and pads it into `out`, memory of the device for
  // batch.layout.bytes bytes at a multiple of 64: one copy, one launch, one event, which is
  // returned. A batch without samples has the event alone. All work that `after` stands for
  // comes before; null ones stand for none. `number` stands in errors.
  // The slab must stay as it is until the event is done. Uses at most `most_blocks` blocks of
  // the device, though one for each group of outputs, or a small part of it if that is 0, so as not
  // to hold up other work. Grows the memory for slabs where one is larger than all before;
  // otherwise allocates nothing, and never waits for the device. After an error, nothing reads the
  // slab and nothing writes to `out`.
  [[nodiscard]] std::shared_ptr<const Event> submit(const StagedBatch& batch, const std::byte* slab,
                                                    CuAddress out,
                                                    std::span<const Event* const> after,
                                                    std::uint64_t number, unsigned most_blocks = 0);

  // Lets a consumer's stream of this device wait for an event.
  void make_wait(CuStream consumer, const Event& event);
  // Returns the point that consumers' streams of this device have come to.
  [[nodiscard]] std::shared_ptr<const Event> record(std::span<const CuStream> consumers);

  // Makes sure that slabs of so many bytes can be copied, so that `submit` need not grow.
  void reserve(std::size_t bytes);

  // Pins and unpins memory of the host, at least one byte, for all devices. Unpinning fails
  // silently, such as at the end of the process, when the driver may have gone before.
  void pin(void* memory, std::size_t bytes);
  void unpin(void* memory) noexcept;

  // Memory of the device. `free` waits for all that was submitted up to now; other streams must
  // have come to their end with it. `free_after_all` waits for all work of the device, which is
  // not possible while a graph of it is captured. Freeing fails silently, and leaks the memory.
  [[nodiscard]] CuAddress allocate(std::size_t bytes);
  void free(CuAddress address) noexcept;
  void free_after_all(CuAddress address) noexcept;

 private:
  friend class Event;
  class Uncaptured;  // While it lives, no call of the thread spoils the capture of a graph.
  class Current;     // While it lives, the lane's context is the thread's, uncaptured.

  void open(const void* image);
  void check(CuResult result, const char* call, const std::string& purpose = "");
  void check_usable() const;
  void mark(Event& event, CuStream stream, const std::string& purpose);
  void take_back(std::vector<CuEvent> marks) noexcept;
  void grow(std::size_t bytes, const std::string& of_batch);
  void launch(const StagedBatch& batch, CuAddress out, const std::string& purpose,
              unsigned most_blocks);

  const Driver& driver_;
  int ordinal_;
  HomeProcess home_;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  CuFunction kernel_ = nullptr;
  int num_multiprocessors_ = 0;

  // Of what follows, and of the order on the stream. One slab on the device is enough: the stream
  // copies the next one into it after the kernel has read the last.
  std::mutex mutex_;
  CuAddress slab_ = 0;
  std::size_t slab_capacity_ = 0;

  std::mutex events_mutex_;  // Of what follows.
  std::vector<CuEvent> idle_events_;
  std::size_t num_events_ = 0;

  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // Never changes once has_failed_.
  std::atomic<bool> has_failed_{false};
};

// Returns the lane to a device of this machine, made at the first call. Throws what system_driver
// and Lane do, and std::runtime_error if the kernel was not built. Thread-safe.
[[nodiscard]] Lane& lane_of(int ordinal);

// Returns why the kernel cannot run on a device of this machine, such as that its driver is too old
// for it, as a clause; nothing if it can. What it cannot, it is asked once. Throws what else
// lane_of does. Thread-safe.
[[nodiscard]] std::optional<std::string> kernel_error(int ordinal);

}  // namespace evenstride
