#include "cuda/pinned.h"

#ifndef _WIN32
#include <sys/mman.h>
#endif

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "core/memory.h"
#include "cuda/capacity.h"

namespace evenstride {
namespace {

// Returns memory at a multiple of a page, or nullptr.
#ifdef _WIN32
void* map_pages(std::size_t /*bytes*/) {
  return nullptr;  // There are no devices.
}

void unmap_pages(void* /*memory*/, std::size_t /*bytes*/) {}
#else
void* map_pages(std::size_t bytes) {
  // Shared, so that a fork copies no page from under the device.
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_pages(void* memory, std::size_t bytes) {
  (void)munmap(memory, bytes);
}
#endif

}  // namespace

struct PinnedPool::Loan {
  explicit Loan(std::shared_ptr<PinnedPool> lender) : pool(std::move(lender)) {}
  ~Loan() {
    if (!slab.empty()) {
      pool->give_back(std::move(slab));
    }
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  Slabs slab;  // One, once it is lent.
  std::shared_ptr<PinnedPool> pool;
};

std::shared_ptr<PinnedPool> PinnedPool::make(Lane& lane, std::size_t num_slabs,
                                             std::size_t capacity) {
  std::shared_ptr<PinnedPool> pool(new PinnedPool(lane));
  pool->largest_ = capacity;
  for (std::size_t i = 0; i < num_slabs; ++i) {
    pool->idle_.splice(pool->idle_.end(), pool->allocate(capacity));
  }
  return pool;
}

PinnedPool::PinnedPool(Lane& lane) : lane_(lane) {}

PinnedPool::~PinnedPool() {
  if (!home_.is_here()) {
    return;
  }
  for (PinnedSlab& slab : idle_) {
    try {
      if (slab.reader != nullptr) {
        slab.reader->wait();
      }
    } catch (const std::exception&) {
      continue;  // The device may still read it, for all that is known.
    }
    free(slab);
  }
}

std::shared_ptr<PinnedSlab> PinnedPool::take(std::size_t bytes) {
  check_not_forked(home_);
  // First, because what is allocated here could throw with a slab in hand.
  const auto loan = std::make_shared<Loan>(shared_from_this());
  Slabs slab = take_idle();
  if (!slab.empty() && slab.front().capacity < bytes) {
    free(slab.front());
    slab.clear();
  }
  if (slab.empty()) {
    std::size_t largest = 0;
    {
      const std::lock_guard lock(mutex_);
      largest = std::max(largest_, bytes);
    }
    slab = allocate(largest);
  }
  {
    const std::lock_guard lock(mutex_);
    largest_ = std::max(largest_, bytes);
    ++use_.lent;
  }
  loan->slab = std::move(slab);
  return {loan, &loan->slab.front()};
}

PinnedPool::Use PinnedPool::use() const {
  check_not_forked(home_);
  const std::lock_guard lock(mutex_);
  return use_;
}

// Returns a slab that nobody reads, or nothing if all are lent.
PinnedPool::Slabs PinnedPool::take_idle() {
  Slabs slab;
  {
    const std::lock_guard lock(mutex_);
    const auto is_free = [](const PinnedSlab& idle) {
      return idle.reader == nullptr || idle.reader->is_done();
    };
    const auto found = std::ranges::find_if(idle_, is_free);
    if (found != idle_.end()) {
      slab.splice(slab.end(), idle_, found);
      found->reader.reset();
    } else if (!idle_.empty()) {
      slab.splice(slab.end(), idle_, idle_.begin());
      ++use_.waits;
    }
  }
  if (!slab.empty() &&
      slab.front().reader !=
          nullptr) {  // Unlocked, so that others can return theirs in the meantime.
    try {
      slab.front().reader->wait();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      idle_.splice(idle_.begin(), slab);
      throw;
    }
    slab.front().reader.reset();
  }
  return slab;
}

PinnedPool::Slabs PinnedPool::allocate(std::size_t bytes) {
  const std::size_t capacity = capacity_for(bytes);
  Slabs slab(1);  // First, because it could throw with memory in hand.
  void* const memory = map_pages(capacity);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  advise_huge_pages(memory, capacity);
  try {
    lane_.pin(memory, capacity);
  } catch (...) {
    unmap_pages(memory, capacity);
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++use_.slabs;
  ++use_.allocations;
  use_.bytes += capacity;
  slab.front() = {
      .memory = static_cast<std::byte*>(memory), .capacity = capacity, .reader = nullptr};
  return slab;
}

void PinnedPool::give_back(Slabs slab) noexcept {
  if (!home_.is_here()) {
    return;  // A thread that the fork left behind may hold the lock.
  }
  const std::lock_guard lock(mutex_);
  --use_.lent;
  idle_.splice(idle_.end(), slab);
}

void PinnedPool::free(const PinnedSlab& slab) noexcept {
  lane_.unpin(slab.memory);
  unmap_pages(slab.memory, slab.capacity);
  const std::lock_guard lock(mutex_);
  --use_.slabs;
  use_.bytes -= slab.capacity;
}

}  // namespace evenstride
