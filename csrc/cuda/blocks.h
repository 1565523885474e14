// Memory of a device for the outputs of batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <span>

#include "cuda/lane.h"

namespace evenstride {

// Room for the outputs of one batch.
struct Block {
  CuAddress address = 0;
  std::size_t capacity = 0;
  // Who keeps the memory alive, and knows whose it is. What it is, only who gave it knows.
  std::shared_ptr<void> owner;
  // What still uses it, if anything: work that comes before it is written again.
  std::shared_ptr<const Event> user;
};

// Blocks that a consumer gives beforehand, so that batches can be submitted before it asks for
// them. Thread-safe.
class BlockQueue {
 public:
  void put(Block block);
  // Returns a block of at least so many bytes, if there is one; the first one that is large enough.
  [[nodiscard]] std::optional<Block> take(std::size_t bytes);
  [[nodiscard]] std::size_t size() const;
  // Drops them all, and from now on what is put. Their owners end on this thread, unlocked.
  void close();

 private:
  mutable std::mutex mutex_;
  std::deque<Block> blocks_;
  bool is_closed_ = false;
};

// Blocks of our own, used in turn. Each is leased for one batch; when the lease is over, the next
// batch in it comes after all work that the consumer's streams had by then. Thread-safe.
class BlockRing {
 public:
  // Allocates `num_blocks` blocks of `capacity` bytes. Throws DeviceError.
  BlockRing(Lane& lane, std::size_t num_blocks, std::size_t capacity);
  // Waits for whatever uses a block, and frees them. Not in a process that was forked since.
  ~BlockRing();
  BlockRing(const BlockRing&) = delete;
  BlockRing& operator=(const BlockRing&) = delete;

  // Leases the block whose lease ended first, or nothing if all are leased. A block that is too
  // small is replaced by a larger one. Tensors of a batch hold copies of `owner`. Throws
  // std::runtime_error if one of an earlier lease of this block is still alive, and DeviceError.
  [[nodiscard]] std::optional<Block> lease(std::size_t bytes);
  // Ends a lease after what these streams of the device have been given up to now.
  void release(const Block& block, std::span<const CuStream> streams);

 private:
  struct Place;

  Lane& lane_;
  mutable std::mutex mutex_;
  std::deque<Place> idle_;
};

}  // namespace evenstride
