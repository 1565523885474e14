#include "core/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "core/balanced.h"
#include "core/names.h"
#include "core/stride.h"

namespace evenstride {
namespace {

constexpr std::size_t kNone = kMostBuckets;  // No bucket.

// The first name of an order is the one that name_of gives.
constexpr Named<Order> kNames[] = {
    {"stride", Order::kStride},          {"balanced", Order::kBalanced},
    {"stratified", Order::kStratified},  {"mixed", Order::kMixed},
    {"shuffle", Order::kShuffle},        {"weighted", Order::kShuffle},
    {"anti_repeat", Order::kAntiRepeat}, {"diversity", Order::kDiversity},
    {"diversity_2", Order::kDiversity2}, {"round_robin", Order::kRoundRobin},
    {"ascending", Order::kAscending},    {"descending", Order::kDescending},
};

// One weight a bucket under partial sums (Fenwick, "A new data structure for cumulative frequency
// tables", 1994), so that a change and a draw take O(log K).
class WeightTree {
 public:
  explicit WeightTree(std::size_t num_buckets)
      : weights_(num_buckets), sums_(std::bit_ceil(num_buckets) + 1) {}

  [[nodiscard]] std::uint64_t total() const noexcept { return sums_.back(); }

  void set(std::size_t bucket, std::uint64_t weight) noexcept {
    const std::uint64_t change = weight - weights_[bucket];  // Wraps around, and so do the sums.
    weights_[bucket] = weight;
    for (std::size_t node = bucket + 1; node < sums_.size(); node += node & (~node + 1)) {
      sums_[node] += change;
    }
  }

  // Returns the bucket b with sum of the weights before b <= point < that sum + weight of b.
  // Precondition: point < total().
  [[nodiscard]] std::size_t at(std::uint64_t point) const noexcept {
    std::size_t before = 0;
    for (std::size_t span = (sums_.size() - 1) / 2; span != 0; span /= 2) {
      const std::uint64_t sum = sums_[before + span];
      const bool beyond = point >= sum;
      point -= beyond ? sum : 0;
      before += beyond ? span : 0;
    }
    return before;
  }

 private:
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> sums_;
};

std::vector<std::uint16_t> shuffled(std::span<const std::uint64_t> steps_per_bucket,
                                    std::uint64_t total, Stream stream, const Watch& watch) {
  std::vector<std::uint16_t> labels;
  labels.reserve(total);
  for (std::size_t bucket = 0; bucket < steps_per_bucket.size(); ++bucket) {
    labels.insert(labels.end(), steps_per_bucket[bucket], static_cast<std::uint16_t>(bucket));
  }
  shuffle(std::span(labels), Draws(stream), watch);
  return labels;
}

// The weight of a step left is 2, or `recent_weight` in the buckets of the last `memory` steps.
// Where all the weight is gone, the oldest of those buckets regains its own, then the next.
std::vector<std::uint16_t> drawn(std::span<const std::uint64_t> steps_per_bucket,
                                 std::uint64_t total, std::size_t memory,
                                 std::uint64_t recent_weight, Stream stream, const Watch& watch) {
  std::vector<std::uint64_t> left(steps_per_bucket.begin(), steps_per_bucket.end());
  WeightTree weights(left.size());
  for (std::size_t bucket = 0; bucket < left.size(); ++bucket) {
    weights.set(bucket, 2 * left[bucket]);
  }
  const auto restore = [&](std::size_t bucket) {
    if (bucket != kNone) {
      weights.set(bucket, 2 * left[bucket]);
    }
  };

  std::array<std::size_t, 2> recent = {kNone, kNone};  // The latest first.
  Draws draws(stream);
  std::vector<std::uint16_t> labels(total);
  StepCheck check(watch);
  for (std::uint16_t& label : labels) {
    check();
    for (std::size_t age = memory; age > 0 && weights.total() == 0; --age) {
      restore(recent[age - 1]);
    }
    const std::size_t bucket = weights.at(draws.below(weights.total()));
    label = static_cast<std::uint16_t>(bucket);
    --left[bucket];

    restore(recent[memory - 1]);
    recent = {bucket, recent[0]};
    for (std::size_t age = 0; age < memory; ++age) {
      if (recent[age] != kNone) {
        weights.set(recent[age], recent_weight * left[recent[age]]);
      }
    }
  }
  return labels;
}

std::vector<std::uint16_t> round_robin(std::span<const std::uint64_t> steps_per_bucket,
                                       std::uint64_t total, const Watch& watch) {
  std::vector<std::uint64_t> left(steps_per_bucket.begin(), steps_per_bucket.end());
  std::vector<std::uint16_t> active(left.size());
  std::iota(active.begin(), active.end(), std::uint16_t{0});
  std::vector<std::uint16_t> labels;
  labels.reserve(total);
  StepCheck check(watch);
  while (labels.size() < total) {
    check(active.size());
    std::erase_if(active, [&](std::uint16_t label) { return left[label] == 0; });
    for (const std::uint16_t label : active) {
      labels.push_back(label);
      --left[label];
    }
  }
  return labels;
}

// Returns the sum of the counts.
std::uint64_t check(std::span<const std::uint64_t> steps_per_bucket, const OrderOptions& options) {
  const auto fail = [](const std::string& sentence) { throw std::invalid_argument(sentence); };
  if (steps_per_bucket.size() > kMostBuckets) {
    fail("`steps_per_bucket` must hold at most " + std::to_string(kMostBuckets) +
         " buckets, but holds " + std::to_string(steps_per_bucket.size()) + ".");
  }
  std::uint64_t total = 0;
  for (std::size_t bucket = 0; bucket < steps_per_bucket.size(); ++bucket) {
    const std::uint64_t steps = steps_per_bucket[bucket];
    if (steps > kMostSteps) {  // Before it is added, because the sum could overflow.
      fail("`steps_per_bucket[" + std::to_string(bucket) + "]` must be at most " +
           std::to_string(kMostSteps) + ", but is " + std::to_string(steps) + ".");
    }
    total += steps;
  }
  if (total > kMostSteps) {
    fail("`steps_per_bucket` must add up to at most " + std::to_string(kMostSteps) +
         ", but adds up to " + std::to_string(total) + ".");
  }
  if (options.jitter >> (kJitterBits - 1) != 0) {
    fail("`jitter` must be below 2^30, half a stride, but is " + std::to_string(options.jitter) +
         ".");
  }
  if (options.accumulation_steps == 0) {
    fail("`accumulation_steps` must be at least 1, but is 0.");
  }
  return total;
}

}  // namespace

Order parse_order(std::string_view name) {
  return parse_name("order", kNames, name);
}

std::string_view name_of(Order order) noexcept {
  return std::ranges::find(kNames, order, &Named<Order>::value)->name;
}

std::uint32_t fixed_jitter(double jitter) {
  if (std::isnan(jitter) || jitter < 0.0 || jitter >= 0.5) {
    std::array<char, 32> digits = {};
    const auto* const end = std::to_chars(digits.data(), digits.data() + digits.size(), jitter).ptr;
    throw std::invalid_argument("`jitter` must be in [0, 0.5), but is " +
                                std::string(std::string_view(digits.data(), end)) + ".");
  }
  // The greatest ones would round to a half.
  return std::min(static_cast<std::uint32_t>(std::lround(std::ldexp(jitter, kJitterBits))),
                  (1U << (kJitterBits - 1)) - 1);
}

std::vector<std::uint16_t> order_steps(std::span<const std::uint64_t> steps_per_bucket,
                                       const OrderOptions& options, Stream stream, Team& team) {
  const std::uint64_t total = check(steps_per_bucket, options);
  switch (options.order) {
    case Order::kStride:
      return stride_order(steps_per_bucket, options.jitter, stream,
                          stride_slice_bits(total, steps_per_bucket.size()), team);
    case Order::kBalanced:
      return balanced_order(steps_per_bucket, 1, stream, team.watch());
    case Order::kStratified:
      return balanced_order(steps_per_bucket,
                            std::max<std::uint64_t>(2, options.accumulation_steps), stream,
                            team.watch());
    case Order::kShuffle:
      return shuffled(steps_per_bucket, total, stream, team.watch());
    case Order::kAntiRepeat:
      return drawn(steps_per_bucket, total, 1, 1, stream, team.watch());
    case Order::kDiversity:
      return drawn(steps_per_bucket, total, 1, 0, stream, team.watch());
    case Order::kDiversity2:
      return drawn(steps_per_bucket, total, 2, 0, stream, team.watch());
    case Order::kRoundRobin:
      return round_robin(steps_per_bucket, total, team.watch());
    case Order::kMixed:
    case Order::kAscending:
    case Order::kDescending:
      break;
  }
  throw std::invalid_argument("`order` must be an order of labels, but is '" +
                              std::string(name_of(options.order)) + "'.");
}

}  // namespace evenstride
