#include "loader/slabs.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "core/memory.h"

namespace evenstride {
namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 12;
constexpr std::size_t kHuge = std::size_t{1} << 21;
// Capacities are powers of two up to here, and multiples of this beyond.
constexpr std::size_t kGrain = std::size_t{1} << 25;

std::size_t rounded_up(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw std::bad_alloc();
  }
  if (bytes <= kGrain) {
    return std::bit_ceil(std::max(bytes, kSmallest));
  }
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

std::align_val_t alignment_of(std::size_t capacity) {
  return std::align_val_t{capacity < kHuge ? 64 : kHuge};
}

}  // namespace

struct SlabPool::Loan {
  explicit Loan(std::shared_ptr<SlabPool> lender) : pool(std::move(lender)) {}
  ~Loan() {
    if (slab.memory != nullptr) {
      pool->give_back(slab);
    }
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  Slab slab;
  std::shared_ptr<SlabPool> pool;
};

std::shared_ptr<SlabPool> SlabPool::make(std::size_t most_idle, std::size_t least_capacity) {
  return std::shared_ptr<SlabPool>(new SlabPool(most_idle, least_capacity));
}

SlabPool::SlabPool(std::size_t most_idle, std::size_t least_capacity)
    : least_capacity_(least_capacity), most_idle_(most_idle) {
  idle_.reserve(most_idle);  // So that a return cannot fail.
}

SlabPool::~SlabPool() {
  // Held by a thread that a fork left behind, the lock may guard a list that is half changed.
  const std::unique_lock lock = lock_if_possible();
  if (lock.owns_lock()) {
    for (const Slab& slab : idle_) {
      free(slab);
    }
  }
}

std::unique_lock<std::mutex> SlabPool::lock_if_possible() {
  if (home_.is_here()) {
    return std::unique_lock(mutex_);
  }
  return {mutex_, std::try_to_lock};
}

std::shared_ptr<const Slab> SlabPool::take(std::size_t bytes) {
  // First, because what is allocated here could throw with a slab in hand.
  const auto loan = std::make_shared<Loan>(shared_from_this());
  Slab slab = take_idle();
  if (slab.memory == nullptr || slab.capacity < bytes) {
    free(slab);
    slab = allocate(bytes);
  }
  lent_.fetch_add(1, std::memory_order_relaxed);
  loan->slab = slab;
  return {loan, &loan->slab};
}

void SlabPool::reserve(std::size_t num_idle) {
  const std::lock_guard lock(mutex_);
  try {
    while (idle_.size() < std::min(num_idle, most_idle_)) {
      idle_.push_back(allocate(least_capacity_));
    }
  } catch (const std::bad_alloc&) {
    return;  // Fewer may do.
  }
}

void SlabPool::close() {
  std::vector<Slab> idle;
  {
    const std::lock_guard lock(mutex_);
    most_idle_ = 0;
    idle.swap(idle_);
  }
  for (const Slab& slab : idle) {
    free(slab);
  }
}

SlabPool::Use SlabPool::use() const {
  return {.slabs = slabs_.load(std::memory_order_relaxed),
          .lent = lent_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .allocations = allocations_.load(std::memory_order_relaxed)};
}

// Returns no memory if there is no idle slab.
Slab SlabPool::take_idle() {
  const std::unique_lock lock = lock_if_possible();
  if (!lock.owns_lock() || idle_.empty()) {
    return {};
  }
  const Slab slab = idle_.back();
  idle_.pop_back();
  return slab;
}

Slab SlabPool::allocate(std::size_t bytes) {
  const std::size_t capacity = rounded_up(std::max(bytes, least_capacity_));
  void* const memory = ::operator new(capacity, alignment_of(capacity));
  if (capacity >= kHuge) {
    advise_huge_pages(memory, capacity);
  }
  slabs_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(capacity, std::memory_order_relaxed);
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return {.memory = static_cast<std::byte*>(memory), .capacity = capacity};
}

void SlabPool::give_back(Slab slab) {
  lent_.fetch_sub(1, std::memory_order_relaxed);
  {
    const std::unique_lock lock = lock_if_possible();
    if (lock.owns_lock() && idle_.size() < most_idle_) {
      idle_.push_back(slab);
      return;
    }
  }
  free(slab);
}

void SlabPool::free(Slab slab) noexcept {
  if (slab.memory == nullptr) {
    return;
  }
  ::operator delete(slab.memory, alignment_of(slab.capacity));
  slabs_.fetch_sub(1, std::memory_order_relaxed);
  bytes_.fetch_sub(slab.capacity, std::memory_order_relaxed);
}

}  // namespace evenstride
