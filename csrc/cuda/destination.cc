#include "cuda/device_batches.h"

#include <algorithm>
#include <utility>

namespace evenstride {

Destination::Destination(Lane& lane, std::shared_ptr<GivenBlocks> given)
    : lane_(lane), given_(std::move(given)) {}

Destination::Destination(Lane& lane, std::size_t num_blocks, std::size_t block_bytes)
    : lane_(lane), ring_(std::in_place, lane, num_blocks, block_bytes) {}

std::optional<BlockRing::Block> Destination::take_block(std::size_t bytes) {
  if (ring_) {
    return ring_->lease(bytes);
  }
  std::optional<GivenBlock> given = given_->take(bytes);
  if (!given) {
    return std::nullopt;
  }
  return BlockRing::Block{.address = given->address,
                          .capacity = given->capacity,
                          .owner = std::move(given->owner),
                          .user = nullptr};
}

bool Destination::submit(DeviceBatch& batch, unsigned most_blocks) {
  std::optional<BlockRing::Block> block = take_block(batch.staged.layout.bytes);
  if (!block) {
    return false;
  }
  batch.ready = lane_.submit(batch.staged, batch.slab->memory, block->address, block->user.get(),
                             batch.number, most_blocks);
  batch.slab->reader = batch.ready;
  batch.destination = this;
  batch.block = *std::move(block);
  return true;
}

void Destination::hand_over(DeviceBatch& batch, CuStream consumer) {
  lane_.make_wait(consumer, *batch.ready);
  batch.slab.reset();
}

void Destination::release(DeviceBatch& batch, std::span<const CuStream> streams) {
  batch.block.owner.reset();
  ring_->release(batch.block, streams);
}

Stager::Stager(std::shared_ptr<const Collator> collator, Lane& lane, std::size_t num_slabs,
               std::uint64_t most_samples, std::uint64_t most_tokens)
    : staging_(std::move(collator)) {
  const std::uint64_t bytes = staging_.most_bytes(most_samples, most_tokens);
  lane.reserve(bytes);
  pool_ = PinnedPool::make(lane, num_slabs, bytes);
}

std::shared_ptr<DeviceBatch> Stager::stage(std::uint64_t number,
                                           std::span<const std::int64_t> samples, BatchRows& rows) {
  staging_.collator().look_up(samples, rows);
  auto batch = std::make_shared<DeviceBatch>();
  batch->number = number;
  staging_.lay_out(rows, batch->staged);
  batch->slab = pool_->take(batch->staged.bytes);
  staging_.write(rows, batch->staged, batch->slab->memory);
  return batch;
}

MakeBatch stage_for(std::shared_ptr<Stager> stager,
                    std::vector<std::shared_ptr<Destination>> destinations,
                    std::shared_ptr<const Delivery> delivery) {
  const bool has_one = std::ranges::count(destinations, destinations.front()) ==
                       static_cast<std::ptrdiff_t>(destinations.size());
  return [stager = std::move(stager), destinations = std::move(destinations),
          delivery = std::move(delivery),
          has_one](std::uint64_t number, std::span<const std::int64_t> samples,
                   BatchRows& rows) -> Delivery::Parcel {
    std::shared_ptr<DeviceBatch> batch = stager->stage(number, samples, rows);
    const std::optional<std::uint32_t> target =
        has_one ? std::optional<std::uint32_t>(0) : delivery->target_of(number);
    if (target) {
      batch->is_early = destinations[*target]->submit(*batch);
    }
    return batch;
  };
}

}  // namespace evenstride
