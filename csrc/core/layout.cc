#include "core/layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/watch.h"

namespace evenstride {
namespace {

constexpr std::size_t kPrefetchBatches = 8;
constexpr std::size_t kSliceBatches = 2048;  // In whole steps.

// Until the indices are copied, offsets say where from. That saves an array where memory peaks.
std::int64_t as_offset(const std::byte* address) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address));
}
const std::byte* as_address(std::int64_t offset) {
  return reinterpret_cast<const std::byte*>(static_cast<std::intptr_t>(offset));
}

}  // namespace

template <class Entry>
EpochPlan lay_out(Steps<Entry> steps, LargeVector<std::uint32_t> sequence, std::size_t num_replicas,
                  std::uint64_t pad_to_multiple_of, Team& team) {
  using Index = typename Entry::Index;
  using Width = std::conditional_t<sizeof(Index) == 4, std::int32_t, std::int64_t>;
  const std::size_t num_batches = steps.batches.size();
  const std::size_t num_steps = sequence.size();
  const std::size_t slice_steps = std::max<std::size_t>(1, kSliceBatches / num_replicas);
  const std::size_t num_slices = (num_steps + slice_steps - 1) / slice_steps;
  EpochPlan plan;
  plan.num_steps = num_steps;
  plan.offsets = Buffer<std::int64_t>(num_batches + 1);
  plan.buckets = Buffer<std::int16_t>(num_batches);
  Buffer<Width> widths(num_batches);
  Buffer<Index> counts(num_batches);
  std::vector<std::int64_t> slice_offsets(num_slices + 1);
  team.for_each(num_slices, [&](std::size_t slice, int) {
    std::int64_t samples = 0;
    const std::size_t end = std::min(num_steps, (slice + 1) * slice_steps);
    for (std::size_t step = slice * slice_steps; step < end; ++step) {
      const std::size_t first = step * num_replicas;
      const std::size_t source = sequence[step] * num_replicas;
      for (std::size_t rank = 0; rank < num_replicas; ++rank) {
        const Batch<Entry>& from = steps.batches[source + rank];
        plan.offsets[first + rank] = as_offset(from.indices);
        plan.buckets[first + rank] = static_cast<std::int16_t>(steps.buckets[source + rank]);
        widths[first + rank] = static_cast<Width>(width_of(from.longest, pad_to_multiple_of));
        counts[first + rank] = from.count;
        samples += static_cast<std::int64_t>(from.count);
      }
    }
    slice_offsets[slice + 1] = samples;
  });
  free_memory(steps.batches);
  free_memory(steps.buckets);
  free_memory(sequence);
  std::partial_sum(slice_offsets.begin(), slice_offsets.end(), slice_offsets.begin());
  Buffer<Index> indices(static_cast<std::size_t>(slice_offsets.back()));
  team.for_each(num_slices, [&](std::size_t slice, int) {
    const std::size_t end = std::min(num_batches, (slice + 1) * slice_steps * num_replicas);
    std::int64_t offset = slice_offsets[slice];
    for (std::size_t batch = slice * slice_steps * num_replicas; batch < end; ++batch) {
      team.watch().check();
      if (batch + kPrefetchBatches < end) {
        const std::byte* const later = as_address(plan.offsets[batch + kPrefetchBatches]);
        for (std::size_t line = 0; line < counts[batch + kPrefetchBatches] * sizeof(Index);
             line += 64) {
          __builtin_prefetch(later + line);
        }
      }
      std::memcpy(&indices[static_cast<std::size_t>(offset)], as_address(plan.offsets[batch]),
                  counts[batch] * sizeof(Index));
      plan.offsets[batch] = offset;
      offset += static_cast<std::int64_t>(counts[batch]);
    }
    team.watch().advance(kLayOutWork * static_cast<std::uint64_t>(offset - slice_offsets[slice]));
  });
  plan.offsets[num_batches] = slice_offsets.back();
  plan.indices = std::move(indices);
  plan.widths = std::move(widths);
  plan.repeats = std::move(steps.repeats);
  plan.dropped = std::move(steps.dropped);
  return plan;
}

template EpochPlan lay_out(Steps<PackedEntry>, LargeVector<std::uint32_t>, std::size_t,
                           std::uint64_t, Team&);
template EpochPlan lay_out(Steps<WideEntry>, LargeVector<std::uint32_t>, std::size_t, std::uint64_t,
                           Team&);

}  // namespace evenstride
