// Memory of the host that devices copy from without a detour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "cuda/lane.h"
#include "loader/process.h"

namespace evenstride {

// A block of pinned memory, at a multiple of a page.
struct PinnedSlab {
  std::byte* memory = nullptr;
  std::size_t capacity = 0;
  // What reads it, if anything: before that is done, it is not written again.
  std::shared_ptr<const Event> reader;
};

// Lends slabs of pages that forked processes share, pinned once. Make it with `make`; slabs that
// are lent keep it alive. In a process that was forked since, every call throws std::runtime_error,
// and slabs are left alone, whatever ends there. Thread-safe.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Allocates `num_slabs` slabs of `capacity` bytes at once. Throws std::bad_alloc and DeviceError.
  static std::shared_ptr<PinnedPool> make(Lane& lane, std::size_t num_slabs, std::size_t capacity);
  // Waits for what still reads a slab. Nothing in a process that was forked since.
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Returns a slab of at least `bytes` bytes that nobody reads or writes: an idle one, else one
  // that comes back when the device has read it, for which this waits, else, if all are lent, a new
  // one. One that is too small is replaced by a larger one. It returns when the last copy of the
  // pointer dies, on whichever thread. Throws std::bad_alloc and DeviceError.
  [[nodiscard]] std::shared_ptr<PinnedSlab> take(std::size_t bytes);

  struct Use {
    std::size_t slabs;
    std::size_t lent;
    std::size_t bytes;
    std::size_t allocations;  // Since the pool was made.
    std::size_t waits;        // For the device to read a slab.
  };
  [[nodiscard]] Use use() const;

 private:
  struct Loan;

  explicit PinnedPool(Lane& lane);

  // Slabs are moved from list to list, so that none can be lost for want of memory.
  using Slabs = std::list<PinnedSlab>;

  [[nodiscard]] Slabs take_idle();
  [[nodiscard]] Slabs allocate(std::size_t bytes);
  void give_back(Slabs slab) noexcept;
  void free(const PinnedSlab& slab) noexcept;

  Lane& lane_;
  HomeProcess home_;
  mutable std::mutex mutex_;
  Slabs idle_;               // Those that were returned first come first.
  std::size_t largest_ = 0;  // For which there ever was memory.
  Use use_{};
};

}  // namespace evenstride
