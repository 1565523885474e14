// Threads that make the batches of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "collate/collate.h"
#include "loader/delivery.h"
#include "loader/given.h"
#include "loader/process.h"
#include "loader/slabs.h"

namespace evenstride {

// The batches of one rank in an epoch plan: batch i is plan batch first + i * stride, and plan
// batch k holds the samples indices[offsets[k]], ..., indices[offsets[k + 1] - 1].
struct PlannedBatches {
  std::variant<std::span<const std::int32_t>, std::span<const std::uint32_t>,
               std::span<const std::int64_t>>
      indices;
  std::span<const std::int64_t> offsets;
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
};

// Makes a batch of a plan, whose number and samples these are, into what is delivered. Any number
// of threads call it at once, each with `rows` of its own, which it uses again for every batch.
using MakeBatch = std::function<Delivery::Parcel(
    std::uint64_t number, std::span<const std::int64_t> samples, BatchRows& rows)>;

// A batch, and the memory that holds it: a block that was given, or else a slab.
struct MadeBatch {
  // Where its outputs lie, as `layout` has them.
  [[nodiscard]] std::byte* memory() const;

  Layout layout;
  std::optional<GivenBlock> block;
  std::shared_ptr<const Slab> slab;  // Null if it lies in a block.
};

// Returns what makes a MadeBatch, in a block that was given, and where none is large enough, in a
// slab of this pool.
[[nodiscard]] MakeBatch collate_into(std::shared_ptr<const Collator> collator,
                                     std::shared_ptr<SlabPool> pool,
                                     std::shared_ptr<GivenBlocks> given);

// `num_threads` threads that claim batches, make them and deliver them, until there are none. What
// they refer to must outlive them.
class Workers {
 public:
  // Goes on with fewer threads where the system grants no more. Whatever a batch throws is its
  // failure, which is delivered; so is std::out_of_range if the plan has no such batch.
  // Throws std::invalid_argument if num_threads < 1, and std::system_error if there is no thread to
  // be had.
  Workers(MakeBatch make, PlannedBatches batches, std::shared_ptr<Delivery> delivery,
          int num_threads);
  // Closes the delivery and waits for the threads, each of which ends after the batch that it is
  // making. In a process that was forked since, there are none to wait for.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

 private:
  struct Scratch;

  void work();
  [[nodiscard]] Delivery::Parcel make(std::uint64_t batch, Scratch& scratch) const;

  MakeBatch make_;
  PlannedBatches batches_;
  std::shared_ptr<Delivery> delivery_;
  HomeProcess home_;
  // Apart, because a forked process must leak it: there, it can neither join nor detach them.
  std::unique_ptr<std::vector<std::thread>> threads_;
};

}  // namespace evenstride
