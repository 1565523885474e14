// The order `mixed`: every optimizer step is one uniform draw of samples over all lengths.
#pragma once

#include <cstdint>

#include "core/buckets.h"
#include "core/cells.h"
#include "core/fill.h"
#include "core/lengths.h"
#include "core/random.h"
#include "core/settle.h"
#include "core/steps.h"
#include "core/threads.h"

namespace evenstride {

struct MixedOptions {
  FillLimits limits;
  StepOptions steps;
  std::uint64_t accumulation_steps = 1;
};

inline constexpr std::uint64_t kCutWork = 500;  // Of a sample, for a watch.

// The samples of an epoch in drawn order, and what can be made of them.
//
// An optimizer step is accumulation_steps * num_replicas batches (the last one may be shorter). Its
// samples are sorted by length and cut under the budget into that many batches of near-equal cost;
// batches of near-equal cost form a step, and its steps are shuffled. Samples are dealt to
// optimizer steps evenly, in drawn order; one that would need too many batches passes its last
// samples on. If samples are left at the end, as few of the last optimizer steps as will do are
// sorted together.
template <class Entry>
class MixedEpoch {
 public:
  // Draws the order. O(samples). All methods check the team's watch, which must outlive this.
  MixedEpoch(const Lengths& lengths, const Classes& classes, const Survey& survey,
             const MixedOptions& options, Stream stream, Workspace& workspace, Team& team);

  // Returns a settlement with one entry of `batches`: on steps_per_epoch, or on as many optimizer
  // steps as are needed when each takes all it can, and 0.5 % more, which leaves other epochs room.
  // Throws std::invalid_argument if steps_per_epoch is neither that number nor a multiple of
  // accumulation_steps in range, or if drop_last leaves no step.
  [[nodiscard]] Settlement settle() const;

  // Returns all steps in their final order. Batches refer to this epoch's memory; their buckets are
  // those of their longest samples, the last one for samples that are alone. `settlement` is of
  // this or another epoch of the same samples.
  [[nodiscard]] Steps<Entry> form(const Settlement& settlement, Team& team);

 private:
  using Index = typename Entry::Index;

  [[nodiscard]] Settlement settle_naturally() const;
  [[nodiscard]] Settlement settle_on(std::uint64_t steps) const;
  [[nodiscard]] std::uint64_t batches_of(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::size_t largest_end(std::size_t begin, std::size_t end,
                                        std::uint64_t max_batches) const;
  [[nodiscard]] std::vector<std::size_t> deal(std::uint64_t num_steps) const;
  void sort_range(std::size_t begin, std::size_t end);
  void cut(std::size_t begin, std::size_t end, std::uint64_t wanted, Batch<Entry>* to);

  const Classes& classes_;
  const Watch& watch_;
  MixedOptions options_;
  Stream stream_;
  std::vector<Entry> entries_;  // In drawn order; `form` sorts inside optimizer steps.
  std::vector<Index> indices_;
};

}  // namespace evenstride
