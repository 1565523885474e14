// `balanced` and `stratified`: random orders in which the buckets never drift from their shares.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/watch.h"

namespace evenstride {

// Returns what a step among so many buckets counts for a watch.
[[nodiscard]] constexpr std::uint64_t balanced_work(std::size_t num_buckets) noexcept {
  return 1000 + 40 * static_cast<std::uint64_t>(num_buckets);
}

// Returns the labels of all steps, drawn anew for every stream, within this bound: among the first
// t of T steps, a bucket with n of them has floor(t * n / T) or ceil(t * n / T), for every multiple
// t of group_size, and for T. So at those t the prefix discrepancy is below 1.
//
// - group_size 1 (`balanced`): a bucket comes twice in a row only where the bound leaves no other
//   choice, or its share is 1/2 or more. Runs of a bucket with share q are shorter than
//   2 / (1 - q).
// - Otherwise (`stratified`): each group of group_size steps, of which the last may be shorter, has
//   as many different buckets as the bound lets it, as far as one can tell step by step, in random
//   order.
//
// The bound is that of the chairman assignment problem (Tijdeman, "The chairman assignment
// problem", Discrete Mathematics 32, 1980), the windows that keep it those of Steiner and Yeomans
// ("Level schedules for mixed-model, just-in-time processes", Management Science 39, 1993).
//
// Takes O(T * K) time for T steps in K buckets. Thread-safe.
//
// Preconditions: at most 32,767 buckets, at most 2^32 - 1 steps, group_size >= 1.
[[nodiscard]] std::vector<std::uint16_t> balanced_order(
    std::span<const std::uint64_t> steps_per_bucket, std::uint64_t group_size, Stream stream,
    Watch& watch);

}  // namespace evenstride
