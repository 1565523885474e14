// Batches on their way to devices: staged by any thread, submitted as soon as there is memory for
// their outputs, handed over to a consumer's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/lane.h"
#include "cuda/pinned.h"
#include "cuda/ring.h"
#include "cuda/staging.h"
#include "loader/delivery.h"
#include "loader/given.h"
#include "loader/workers.h"

namespace evenstride {

class Destination;

// A batch. One thread at a time uses it.
struct DeviceBatch {
  std::uint64_t number = 0;  // Stands in errors.
  StagedBatch staged;
  std::shared_ptr<PinnedSlab> slab;

  // Once it was submitted: where to, into which memory, and what stands for its end.
  const Destination* destination = nullptr;
  BlockRing::Block block;
  std::shared_ptr<const Event> ready;
  bool is_early = false;  // Submitted before a consumer had it.
};

// The memory of one device for the outputs of batches, and the way there. Thread-safe.
class Destination {
 public:
  // Into blocks that consumers give.
  Destination(Lane& lane, std::shared_ptr<GivenBlocks> given);
  // Into a ring of so many blocks of our own. Throws DeviceError.
  Destination(Lane& lane, std::size_t num_blocks, std::size_t block_bytes);

  [[nodiscard]] Lane& lane() const noexcept { return lane_; }

  // Submits a batch that was not submitted here. Returns false, and does nothing, if
  // there is no memory for it: none given that is large enough, or all of the ring leased. Throws
  // what Lane::submit and BlockRing::lease do; the batch can then be submitted again. `most_blocks`
  // is as for Lane::submit.
  [[nodiscard]] bool submit(DeviceBatch& batch, unsigned most_blocks = 0);

  // Lets a consumer's stream wait for a batch that was submitted here, and lets go of its slab.
  void hand_over(DeviceBatch& batch, CuStream consumer);

  // Ends the lease of a batch's block of the ring, after what these streams have been given up to
  // now. Precondition: there is a ring, and the lease has not ended.
  void release(DeviceBatch& batch, std::span<const CuStream> streams);

 private:
  [[nodiscard]] std::optional<BlockRing::Block> take_block(std::size_t bytes);

  Lane& lane_;
  std::shared_ptr<GivenBlocks> given_;
  std::optional<BlockRing> ring_;
};

// Stages batches in pinned memory. Thread-safe.
class Stager {
 public:
  // Holds `num_slabs` slabs for batches of so many samples and tokens. Throws what Staging and
  // PinnedPool::make do.
  Stager(std::shared_ptr<const Collator> collator, Lane& lane, std::size_t num_slabs,
         std::uint64_t most_samples, std::uint64_t most_tokens);

  [[nodiscard]] const Staging& staging() const noexcept { return staging_; }
  // Throws what Collator::look_up, Staging::lay_out and write, and PinnedPool::take do.
  [[nodiscard]] std::shared_ptr<DeviceBatch> stage(std::uint64_t number,
                                                   std::span<const std::int64_t> samples,
                                                   BatchRows& rows);

  [[nodiscard]] PinnedPool::Use use() const { return pool_->use(); }

 private:
  Staging staging_;
  std::shared_ptr<PinnedPool> pool_;
};

// Returns what makes a DeviceBatch, and submits it at once where it is known for which device it is
// and there is memory for it: where all targets have one destination, or batches come in order.
// `destinations` has one for each target.
[[nodiscard]] MakeBatch stage_for(std::shared_ptr<Stager> stager,
                                  std::vector<std::shared_ptr<Destination>> destinations,
                                  std::shared_ptr<const Delivery> delivery);

}  // namespace evenstride
