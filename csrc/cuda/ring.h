// Blocks of a device's memory for the outputs of batches, used in turn.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cuda/lane.h"
#include "loader/process.h"

namespace evenstride {

// Blocks of our own, each leased for one batch; when the lease is over, the next batch in it comes
// after all work that the consumer's streams had by then. In a process that was forked since, every
// call throws std::runtime_error. Thread-safe.
class BlockRing {
 public:
  // Room for the outputs of one batch.
  struct Block {
    CuAddress address = 0;
    std::size_t capacity = 0;
    // Stands for the lease, and keeps the memory alive, even past the ring. Tensors of the batch
    // hold copies.
    std::shared_ptr<void> owner;
    // What still uses it, if anything: work that comes before it is written again.
    std::shared_ptr<const Event> user;
  };

  // Allocates `num_blocks` blocks of at least `capacity` bytes. Throws DeviceError.
  BlockRing(Lane& lane, std::size_t num_blocks, std::size_t capacity);
  // Waits for whatever uses a block whose lease is over, and frees it unless one of its owners is
  // alive. Nothing in a process that was forked since.
  ~BlockRing();
  BlockRing(const BlockRing&) = delete;
  BlockRing& operator=(const BlockRing&) = delete;

  // Leases the block whose lease ended first, of those that no owner of an earlier lease keeps; or
  // nothing if there is none. A block that is too small is replaced by a larger one, after what
  // uses it. Throws DeviceError; then the block stays in its turn.
  [[nodiscard]] std::optional<Block> lease(std::size_t bytes);

  // Ends a lease after what these streams of the device have been given up to now. The caller lets
  // go of its copies of the owner. Throws std::logic_error if the block is not leased, and
  // DeviceError; then the block stays leased.
  void release(const Block& block, std::span<const CuStream> streams);

  // Undoes a lease: the block is the next one again, after what `block.user` stands for, and its
  // owner is let go of. Throws std::logic_error if the block is not leased.
  void cancel(Block block);

 private:
  struct Memory;
  struct Place;

  [[nodiscard]] Place& leased_place(const Block& block);

  Lane& lane_;
  HomeProcess home_;
  mutable std::mutex mutex_;
  std::vector<Place> places_;
  std::vector<Place*> idle_;  // Those whose leases ended first come first. Never grows.
  std::size_t largest_;       // For which there ever was memory.
};

}  // namespace evenstride
