// Steps: which batches meet, one on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/compose.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/settle.h"
#include "core/threads.h"

namespace evenstride {

// All steps of an epoch: batch i of step s stands at s * num_replicas + i and goes to rank i.
template <class Entry>
struct Steps {
  LargeVector<Batch<Entry>> batches;
  LargeVector<std::uint16_t> buckets;           // The bucket of each batch.
  std::vector<std::uint64_t> steps_per_bucket;  // By their labels, see `label_of`.
  std::vector<std::uint64_t> repeats;           // Indices of samples that are there once more.
  std::vector<std::uint64_t> dropped;           // Indices of samples that are in no step.
};

// Forms steps from buckets that have been filled as `settlement` says; those with one label stand
// together, in random order.
//
// Batches of near-equal padded tokens form a step. A bucket whose batches are no multiple of
// num_replicas hands the rest, its cheapest, on to the next shorter bucket, whose most expensive
// complete a mixed step. With drop_last the rests are drawn at random, fewer than num_replicas of
// their batches are dropped, and the others form mixed steps in bucket order. Which rank gets which
// batch of a step is drawn. O(batches). The result does not depend on the team. Takes the batches
// out of `buckets`; what they refer to stays there.
template <class Entry>
[[nodiscard]] Steps<Entry> form_steps(std::span<FilledBucket<Entry>> buckets,
                                      const Settlement& settlement, const StepOptions& options,
                                      std::uint64_t pad_to_multiple_of, Stream stream, Team& team);

// Draws which rank gets which batch of each step in [begin, end).
template <class Entry>
void draw_ranks(Steps<Entry>& steps, std::uint64_t num_replicas, std::size_t begin, std::size_t end,
                Stream stream, const Watch& watch = kUnwatched);

}  // namespace evenstride
