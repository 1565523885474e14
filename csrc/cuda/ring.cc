#include "cuda/ring.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "cuda/capacity.h"

namespace evenstride {

struct BlockRing::Memory {
  Memory(Lane& owner, std::size_t bytes)
      : lane(owner), capacity(capacity_for(bytes)), address(lane.allocate(capacity)) {}
  ~Memory() {
    if (is_settled) {
      lane.free(address);
    } else {
      lane.free_after_all(address);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Lane& lane;
  std::size_t capacity;
  CuAddress address;
  bool is_settled = false;  // No consumer can use it any more. Of its last owner.
};

struct BlockRing::Place {
  // Waits for what uses the memory. Precondition: the lease is over.
  void settle() {
    if (user != nullptr) {
      user->wait();
      user.reset();
    }
    if (memory != nullptr && lease.expired()) {
      memory->is_settled = true;
    }
  }

  std::shared_ptr<Memory> memory;
  std::weak_ptr<void> lease;
  std::shared_ptr<const Event> user;
};

BlockRing::BlockRing(Lane& lane, std::size_t num_blocks, std::size_t capacity)
    : lane_(lane), places_(num_blocks), largest_(capacity) {
  idle_.reserve(num_blocks);
  for (Place& place : places_) {
    place.memory = std::make_shared<Memory>(lane_, capacity);
    idle_.push_back(&place);
  }
}

BlockRing::~BlockRing() {
  if (!home_.is_here()) {
    return;
  }
  for (Place* const place : idle_) {
    try {
      place->settle();
    } catch (const std::exception&) {
      return;  // The driver is gone or has failed: nothing can be freed either.
    }
  }
}

std::optional<BlockRing::Block> BlockRing::lease(std::size_t bytes) {
  check_not_forked(home_);
  const std::lock_guard lock(mutex_);
  const auto free =
      std::ranges::find_if(idle_, [](const Place* place) { return place->lease.expired(); });
  if (free == idle_.end()) {
    return std::nullopt;
  }
  Place& place = **free;
  if (place.memory == nullptr || place.memory->capacity < bytes) {
    place.settle();
    place.memory.reset();  // First, because there may not be memory for both.
    const std::size_t largest = std::max(largest_, bytes);
    place.memory = std::make_shared<Memory>(lane_, largest);
    largest_ = largest;
  }
  // A pointer of its own for every lease, so that its end can be seen.
  const auto owner = std::make_shared<std::shared_ptr<const Memory>>(place.memory);
  place.lease = owner;
  idle_.erase(free);
  return Block{.address = place.memory->address,
               .capacity = place.memory->capacity,
               .owner = owner,
               .user = std::exchange(place.user, nullptr)};
}

void BlockRing::release(const Block& block, std::span<const CuStream> streams) {
  check_not_forked(home_);
  const std::lock_guard lock(mutex_);
  Place& place = leased_place(block);
  place.user = lane_.record(streams);
  idle_.push_back(&place);
}

void BlockRing::cancel(Block block) {
  check_not_forked(home_);
  block.owner.reset();
  const std::lock_guard lock(mutex_);
  Place& place = leased_place(block);
  place.user = std::move(block.user);
  idle_.insert(idle_.begin(), &place);
}

// Precondition: mutex_ is held.
BlockRing::Place& BlockRing::leased_place(const Block& block) {
  const auto is_its_place = [&block](const Place& place) {
    return place.memory != nullptr && place.memory->address == block.address;
  };
  const auto found = std::ranges::find_if(places_, is_its_place);
  if (found == places_.end() || std::ranges::find(idle_, &*found) != idle_.end()) {
    throw std::logic_error("A block must be leased for its lease to end, but its lease is over.");
  }
  return *found;
}

}  // namespace evenstride
