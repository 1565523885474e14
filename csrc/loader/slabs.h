// Memory for batches, which returns when the last tensor that views it has died.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "loader/process.h"

namespace evenstride {

// A block of memory at a multiple of 64 bytes.
struct Slab {
  std::byte* memory = nullptr;
  std::size_t capacity = 0;
};

// Lends slabs. Make it with `make`; slabs that are lent keep it alive.
//
// In a process that was forked since, where a thread that is gone may hold the pool's lock, no call
// waits for it: a slab is allocated or freed directly instead. Thread-safe.
class SlabPool : public std::enable_shared_from_this<SlabPool> {
 public:
  // Keeps at most `most_idle` slabs that nobody uses, none of them smaller than `least_capacity`
  // bytes. Takes O(most_idle) memory at once.
  static std::shared_ptr<SlabPool> make(std::size_t most_idle, std::size_t least_capacity = 0);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // Returns a slab of at least `bytes` bytes: the one that came back last, if it is large enough;
  // if not, that one is freed and a new one takes its place.
  // Capacities are rounded up, so that batches of a like size fit each other's slabs. The slab
  // returns when the last copy of the pointer dies, on whichever thread. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<const Slab> take(std::size_t bytes);

  // Allocates idle slabs until there are `num_idle`, at most `most_idle`, or no more memory. They
  // are of the least capacity, and stay untouched until they are lent.
  void reserve(std::size_t num_idle);

  // Frees what is idle, and from now on what returns, at once. Not in a process that was forked
  // since, where the lock may never be free.
  void close();

  struct Use {
    std::size_t slabs;  // Lent and idle.
    std::size_t lent;
    std::size_t bytes;        // Capacity of them all.
    std::size_t allocations;  // Since the pool was made.
  };
  // Each number is exact; together they are so while no slab is taken or returned.
  [[nodiscard]] Use use() const;

 private:
  struct Loan;

  SlabPool(std::size_t most_idle, std::size_t least_capacity);
  // Owns the lock, which is held for a few instructions; after a fork, only if nobody holds it.
  [[nodiscard]] std::unique_lock<std::mutex> lock_if_possible();
  [[nodiscard]] Slab take_idle();
  [[nodiscard]] Slab allocate(std::size_t bytes);
  void give_back(Slab slab);
  void free(Slab slab) noexcept;

  const std::size_t least_capacity_;
  HomeProcess home_;
  std::mutex mutex_;
  std::size_t most_idle_;
  std::vector<Slab> idle_;  // The one that came back last is last.
  std::atomic<std::size_t> slabs_{0};
  std::atomic<std::size_t> lent_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> allocations_{0};
};

}  // namespace evenstride
