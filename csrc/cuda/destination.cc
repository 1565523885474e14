#include "cuda/destination.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace evenstride {
namespace {

BlockRing::Block block_of(GivenBlock given) {
  return {.address = given.address,
          .capacity = given.capacity,
          .owner = std::move(given.owner),
          .user = nullptr};
}

}  // namespace

Destination::Destination(Lane& lane, std::shared_ptr<GivenBlocks> given)
    : lane_(lane), given_(std::move(given)) {}

Destination::Destination(Lane& lane, std::size_t num_blocks, std::size_t block_bytes)
    : lane_(lane), ring_(std::in_place, lane, num_blocks, block_bytes) {}

std::optional<BlockRing::Block> Destination::take_block(std::size_t bytes) {
  if (ring_) {
    return ring_->lease(bytes);
  }
  std::optional<GivenBlock> given = given_->take(bytes);
  return given ? std::optional(block_of(*std::move(given))) : std::nullopt;
}

// Undoes a take, as if there had been none.
void Destination::put_back(BlockRing::Block block) {
  if (ring_) {
    ring_->cancel(std::move(block));
  } else {
    given_->put(
        {.address = block.address, .capacity = block.capacity, .owner = std::move(block.owner)});
  }
}

// Lets go of the memory of a batch that was submitted here, and may still be written.
void Destination::give_up(DeviceBatch& batch) {
  BlockRing::Block block = std::exchange(batch.block, {});
  block.user = std::exchange(batch.ready, nullptr);
  batch.destination = nullptr;
  if (ring_) {
    ring_->cancel(std::move(block));
  }  // Else it goes back to a stream, ours, whose next work comes after.
}

bool Destination::submit(DeviceBatch& batch, unsigned most_blocks) {
  std::optional<BlockRing::Block> block = take_block(batch.staged.layout.bytes);
  if (!block) {
    return false;
  }
  try {
    submit_to(*block, batch, most_blocks);
  } catch (...) {
    put_back(*std::move(block));
    throw;
  }
  batch.is_given = true;
  return true;
}

void Destination::submit_into(DeviceBatch& batch, GivenBlock block) {
  BlockRing::Block own = block_of(std::move(block));
  submit_to(own, batch, 0);
  batch.is_given = false;
}

// Leaves the block as it is if it throws.
void Destination::submit_to(BlockRing::Block& block, DeviceBatch& batch, unsigned most_blocks) {
  if (batch.slab == nullptr) {
    throw std::logic_error("A batch must have its slab to be submitted, but batch " +
                           std::to_string(batch.number) + " has let go of it.");
  }
  // The new reader of the slab stands for the one before, too.
  const Event* const after[] = {block.user.get(), batch.slab->reader.get()};
  std::shared_ptr<const Event> ready = lane_.submit(batch.staged, batch.slab->memory, block.address,
                                                    after, batch.number, most_blocks);
  batch.slab->reader = ready;
  if (batch.destination != nullptr) {
    batch.destination->give_up(batch);
  }
  batch.destination = this;
  batch.block = std::move(block);
  batch.ready = std::move(ready);
}

void Destination::hand_over(const DeviceBatch& batch, CuStream consumer) {
  lane_.make_wait(consumer, *batch.ready);
}

void Destination::release(DeviceBatch& batch, std::span<const CuStream> streams) {
  if (!ring_ || batch.destination != this) {
    return;
  }
  ring_->release(batch.block, streams);
  batch.block = {};
  batch.ready.reset();
  batch.destination = nullptr;
}

}  // namespace evenstride
