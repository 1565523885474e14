#include "loader/given.h"

#include <algorithm>
#include <utility>

namespace evenstride {

GivenBlocks::~GivenBlocks() {
  if (!home_.is_here()) {
    [[maybe_unused]] const auto* const leaked = blocks_.release();
  }
}

void GivenBlocks::put(GivenBlock block) {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) {
    blocks_->push_back(std::move(block));
  }
}

std::optional<GivenBlock> GivenBlocks::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      *blocks_, [&](const GivenBlock& block) { return block.capacity >= bytes; });
  if (found == blocks_->end()) {
    return std::nullopt;
  }
  std::optional<GivenBlock> block = std::move(*found);
  blocks_->erase(found);
  return block;
}

std::size_t GivenBlocks::size() const {
  const std::lock_guard lock(mutex_);
  return blocks_->size();
}

void GivenBlocks::close() {
  std::deque<GivenBlock> dropped;  // Dies unlocked.
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  dropped.swap(*blocks_);
}

}  // namespace evenstride
