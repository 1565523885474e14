// The orders in which the steps of an epoch can come, as sequences of bucket labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/labels.h"
#include "core/random.h"
#include "core/threads.h"

namespace evenstride {

enum class Order : std::uint8_t {
  kStride,
  kBalanced,
  kStratified,
  kMixed,
  kShuffle,
  kAntiRepeat,
  kDiversity,
  kDiversity2,
  kRoundRobin,
  kAscending,
  kDescending,
};

// Returns the order of this name; 'weighted' is another name of 'shuffle'.
//
// Throws std::invalid_argument, with the names that are accepted, if it is none of them.
[[nodiscard]] Order parse_order(std::string_view name);

// Returns the name that parse_order accepts; 'shuffle' for kShuffle.
[[nodiscard]] std::string_view name_of(Order order) noexcept;

// A jitter of 1 << kJitterBits would be one whole stride.
inline constexpr unsigned kJitterBits = 31;

// Returns `jitter`, a fraction of the stride, as the nearest multiple of 2^-31, below 2^30.
//
// Throws std::invalid_argument if jitter is not in [0, 0.5).
[[nodiscard]] std::uint32_t fixed_jitter(double jitter);

inline constexpr std::uint64_t kMostSteps = 0xFFFF'FFFF;

struct OrderOptions {
  Order order = Order::kStride;
  std::uint32_t jitter = 0;              // For kStride; made by fixed_jitter.
  std::uint64_t accumulation_steps = 1;  // For kStratified, which groups at least 2 steps.
};

// Returns the labels of all steps: label k comes steps_per_bucket[k] times.
//
// The result depends on `steps_per_bucket`, `options` and `stream` alone. By options.order:
//
// - kStride: rising places, one stride apart for each bucket; stride.h has the rule.
// - kBalanced, kStratified: every prefix, or every group of steps, holds the shares; balanced.h.
// - kShuffle: every sequence with these counts is equally likely.
// - kAntiRepeat: a step's bucket is drawn in proportion to the steps that the buckets have left,
//   with half the weight for the bucket of the step before.
// - kDiversity: drawn in proportion to the steps left, but never the bucket of the step before
//   while another has steps left.
// - kDiversity2: the same, among the buckets other than those of the two steps before; once no such
//   bucket has steps left, the older of the two may come again; once that one has none left, any.
// - kRoundRobin: rounds of one step of every bucket that has steps left, in ascending bucket order.
//
// Precondition: options.order is one of these. kMixed has no labels to order, and kAscending and
// kDescending go by width, so the caller sees to them.
//
// Throws std::invalid_argument if there are more than kMostBuckets buckets or kMostSteps steps, if
// options.jitter is 2^30 or more, if options.accumulation_steps is 0, or if the precondition fails.
//
// For T steps in K buckets takes O(T) time, divided among the team, for kStride; O(T * K) for
// kBalanced and kStratified; O(T * log K) for the orders that draw; else O(T). Thread-safe, but for
// the team.
[[nodiscard]] std::vector<std::uint16_t> order_steps(
    std::span<const std::uint64_t> steps_per_bucket, const OrderOptions& options, Stream stream,
    Team& team);

}  // namespace evenstride
