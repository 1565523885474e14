// A collator with memory for its batches, and counts of what it cut.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collate/collate.h"
#include "loader/slabs.h"

namespace evenstride {

// Thread-safe.
struct PooledCollator {
  struct Truncated {
    std::atomic<std::uint64_t> samples{0};
    std::atomic<std::uint64_t> tokens{0};
  };

  explicit PooledCollator(std::shared_ptr<const Collator> made);

  // Looks up and writes a batch, in memory that earlier ones have left, and with a few threads
  // where it is large. Throws what Collator::look_up and write do, and std::bad_alloc.
  [[nodiscard]] std::shared_ptr<const Slab> collate(std::span<const std::int64_t> samples,
                                                    BatchRows& batch);

  // Adds what was cut in a batch.
  void count(const Layout& layout);

  std::shared_ptr<const Collator> collator;
  std::shared_ptr<SlabPool> pool;
  std::vector<Truncated> truncated;  // For each output.
};

}  // namespace evenstride
