#include "cuda/stager.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace evenstride {

Stager::Stager(std::shared_ptr<const Collator> collator, Lane& lane, std::size_t num_slabs,
               std::uint64_t most_samples, std::uint64_t most_tokens)
    : staging_(std::move(collator)), most_bytes_(staging_.most_bytes(most_samples, most_tokens)) {
  reserve(lane);
  pool_ = PinnedPool::make(lane, num_slabs, most_bytes_);
}

void Stager::reserve(Lane& lane) const {
  lane.reserve(most_bytes_);
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
  for (const std::shared_ptr<Destination>& destination : destinations) {
    stager->reserve(destination->lane());
  }
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
      (void)destinations[*target]->submit(*batch);  // Else when its consumer has memory for it.
    }
    return batch;
  };
}

}  // namespace evenstride
