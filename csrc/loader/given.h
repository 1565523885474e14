// Memory that a consumer gives beforehand for the batches that it will take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "loader/process.h"

namespace evenstride {

// Room for one batch, at a multiple of 64 bytes, in whatever memory its address means.
struct GivenBlock {
  std::uintptr_t address = 0;
  std::size_t capacity = 0;
  std::shared_ptr<void> owner;  // Keeps the memory. What it is, only who gave it knows.
};

// Blocks that wait for a batch. Each is handed out once, and not taken back: where its batch has
// died, so has the block.
//
// No owner ends under the lock, so that an owner's end may take other locks. In a process that was
// forked since, owners are left alone, whose memory may be of a device that does not work there.
// Thread-safe.
class GivenBlocks {
 public:
  GivenBlocks() = default;
  ~GivenBlocks();
  GivenBlocks(const GivenBlocks&) = delete;
  GivenBlocks& operator=(const GivenBlocks&) = delete;

  // Adds a block. After `close`, drops it.
  void put(GivenBlock block);
  // Returns the first block, in the order in which they were given, that has at least `bytes`
  // bytes, or nothing at once if there is none. Smaller ones stay. Takes O(size()) time; O(1) where
  // blocks are large enough.
  [[nodiscard]] std::optional<GivenBlock> take(std::size_t bytes);
  // How many blocks wait.
  [[nodiscard]] std::size_t size() const;

  // Drops all blocks, and from now on what is put. Idempotent. Not in a process that was forked
  // since, where the lock may never be free.
  void close();

 private:
  HomeProcess home_;
  mutable std::mutex mutex_;
  // Apart, because a forked process must leak it.
  std::unique_ptr<std::deque<GivenBlock>> blocks_ = std::make_unique<std::deque<GivenBlock>>();
  bool is_closed_ = false;
};

}  // namespace evenstride
