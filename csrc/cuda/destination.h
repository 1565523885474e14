// Memory of a device for the outputs of batches, and batches on their way there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cuda/lane.h"
#include "cuda/pinned.h"
#include "cuda/ring.h"
#include "cuda/staging.h"
#include "loader/given.h"

namespace evenstride {

class Destination;

// A batch. One thread at a time uses it.
struct DeviceBatch {
  std::uint64_t number = 0;  // Stands in errors.
  StagedBatch staged;
  // Until a consumer has the batch for good: before that, it may have to go to another device.
  std::shared_ptr<PinnedSlab> slab;

  // Once it was submitted: where to, into which memory, and what stands for its end.
  Destination* destination = nullptr;
  BlockRing::Block block;
  std::shared_ptr<const Event> ready;
  bool is_given = false;  // Its memory was given before it needed it.
};

// The memory of one device for the outputs of batches, and the way there. Outlives what is done
// with the batches that were submitted to it. Thread-safe.
class Destination {
 public:
  // Into blocks that consumers give.
  Destination(Lane& lane, std::shared_ptr<GivenBlocks> given);
  // Into a ring of so many blocks of our own. Throws DeviceError.
  Destination(Lane& lane, std::size_t num_blocks, std::size_t block_bytes);

  [[nodiscard]] Lane& lane() const noexcept { return lane_; }

  // Submits a batch, which has its slab, and gives up what it was submitted to before. Returns
  // false, and does nothing, if there is no memory for it: none given that is large enough, or all
  // of the ring leased or kept. Throws what Lane::submit and BlockRing::lease do; then the memory
  // has gone back, the batch is as it was, and it can be submitted again. Throws std::logic_error
  // if the batch has no slab. `most_blocks` is as for Lane::submit.
  [[nodiscard]] bool submit(DeviceBatch& batch, unsigned most_blocks = 0);
  // The same into a block of at least its bytes, which is for this batch alone. Precondition: there
  // is no ring.
  void submit_into(DeviceBatch& batch, GivenBlock block);

  // Lets a consumer's stream wait for a batch that was submitted here. The batch keeps its slab:
  // if what the consumer does next fails, it can be submitted again.
  void hand_over(const DeviceBatch& batch, CuStream consumer);

  // Ends the lease of a batch's block of the ring, after what these streams have been given up to
  // now: the batch is submitted nowhere then. Nothing if there is no ring, or the batch is not
  // submitted here any more. Throws what BlockRing::release does, and the lease goes on.
  void release(DeviceBatch& batch, std::span<const CuStream> streams);

 private:
  [[nodiscard]] std::optional<BlockRing::Block> take_block(std::size_t bytes);
  void put_back(BlockRing::Block block);
  void submit_to(BlockRing::Block& block, DeviceBatch& batch, unsigned most_blocks);
  void give_up(DeviceBatch& batch);

  Lane& lane_;
  std::shared_ptr<GivenBlocks> given_;
  std::optional<BlockRing> ring_;
};

}  // namespace evenstride
