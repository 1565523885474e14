// Batches on their way to devices: staged by any thread, submitted as soon as there is memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/destination.h"
#include "cuda/lane.h"
#include "cuda/pinned.h"
#include "cuda/staging.h"
#include "loader/delivery.h"
#include "loader/workers.h"

namespace evenstride {

// Stages batches in pinned memory. Thread-safe.
class Stager {
 public:
  // Holds `num_slabs` slabs for batches of so many samples and tokens, and has the lane reserve
  // one. Throws what Staging and PinnedPool::make do.
  Stager(std::shared_ptr<const Collator> collator, Lane& lane, std::size_t num_slabs,
         std::uint64_t most_samples, std::uint64_t most_tokens);

  // Has a lane reserve memory for slabs of such batches. Throws DeviceError.
  void reserve(Lane& lane) const;

  // Throws what Collator::look_up, Staging::lay_out and write, and PinnedPool::take do.
  [[nodiscard]] std::shared_ptr<DeviceBatch> stage(std::uint64_t number,
                                                   std::span<const std::int64_t> samples,
                                                   BatchRows& rows);

  [[nodiscard]] PinnedPool::Use use() const { return pool_->use(); }

 private:
  Staging staging_;
  std::uint64_t most_bytes_;
  std::shared_ptr<PinnedPool> pool_;
};

// Returns what makes a DeviceBatch, and submits it at once where it is known for which device it is
// and there is memory for it: where all targets have one destination, or batches come in order.
// `destinations` has one for each target. Their lanes reserve what the batches need, so that
// nothing is allocated amid a pass. Throws DeviceError.
[[nodiscard]] MakeBatch stage_for(std::shared_ptr<Stager> stager,
                                  std::vector<std::shared_ptr<Destination>> destinations,
                                  std::shared_ptr<const Delivery> delivery);

}  // namespace evenstride
