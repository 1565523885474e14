// The label of a step whose batches may come from several buckets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <vector>

namespace evenstride {

// Labels of buckets fit 16 bits with a sign, and so do a few more for samples in no bucket.
inline constexpr std::size_t kMostBuckets = 32'000;

// Returns the label of a step: the bucket of most of its batches, the longer one of a tie.
// Precondition: there is at least one batch. O(batches) if they are of one bucket, else
// O(batches * log batches).
template <std::ranges::contiguous_range Buckets>
[[nodiscard]] std::ranges::range_value_t<Buckets> label_of(const Buckets& buckets) {
  using Label = std::ranges::range_value_t<Buckets>;
  const Label first = *std::ranges::begin(buckets);
  if (std::ranges::all_of(buckets, [=](Label bucket) { return bucket == first; })) {
    return first;
  }
  std::vector<Label> sorted(std::ranges::begin(buckets), std::ranges::end(buckets));
  std::ranges::sort(sorted);
  Label label = first;
  std::size_t most = 0;
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin + 1;
    while (end < sorted.size() && sorted[end] == sorted[begin]) {
      ++end;
    }
    if (end - begin >= most) {
      most = end - begin;
      label = sorted[begin];
    }
    begin = end;
  }
  return label;
}

}  // namespace evenstride
