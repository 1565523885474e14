#include "core/fewest.h"

#include <cstddef>

namespace evenstride {

std::vector<std::uint64_t> fewest_batches(const LengthHistogram& histogram, const Classes& classes,
                                          const FillLimits& limits) {
  std::vector<std::uint64_t> batches(classes.num_buckets());
  std::vector<std::uint64_t> open(classes.num_buckets());  // Samples of the last batch so far.
  for (std::size_t i = 0; i < histogram.lengths.size(); ++i) {
    const std::size_t bucket = classes(histogram.lengths[i]);
    if (bucket >= classes.num_buckets()) {
      continue;
    }
    const std::uint64_t capacity = capacity_of(histogram.lengths[i], limits);
    const std::uint64_t room = open[bucket] < capacity ? capacity - open[bucket] : 0;
    if (batches[bucket] > 0 && histogram.counts[i] <= room) {
      open[bucket] += histogram.counts[i];
      continue;
    }
    const std::uint64_t rest = histogram.counts[i] - (batches[bucket] > 0 ? room : 0);
    const std::uint64_t opened = (rest - 1) / capacity + 1;
    batches[bucket] += opened;
    open[bucket] = rest - (opened - 1) * capacity;
  }
  return batches;
}

}  // namespace evenstride
