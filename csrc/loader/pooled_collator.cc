#include "loader/pooled_collator.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/threads.h"

namespace evenstride {
namespace {

constexpr std::size_t kMostIdle = 4;
constexpr int kMostThreads = 4;  // Memory has no more to give.

}  // namespace

PooledCollator::PooledCollator(std::shared_ptr<const Collator> made)
    : collator(std::move(made)),
      pool(SlabPool::make(kMostIdle)),
      truncated(collator->outputs().size()) {}

std::shared_ptr<const Slab> PooledCollator::collate(std::span<const std::int64_t> samples,
                                                    BatchRows& batch) {
  static const int kNumThreads = std::min(kMostThreads, available_processors());
  collator->look_up(samples, batch);
  std::shared_ptr<const Slab> slab = pool->take(batch.layout.bytes);
  collator->write(batch, slab->memory, kNumThreads);
  return slab;
}

void PooledCollator::count(const Layout& layout) {
  for (std::size_t o = 0; o < truncated.size(); ++o) {
    truncated[o].samples += layout.arrays[o].truncated_samples;
    truncated[o].tokens += layout.arrays[o].truncated_tokens;
  }
}

}  // namespace evenstride
