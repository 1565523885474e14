// Times every order of labels on the step counts of `data/`, and on as many steps in 64 buckets.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/order.h"

namespace evenstride {
namespace {

constexpr std::array<std::uint64_t, 6> kSeedCounts = {2120, 4017, 5471, 7493, 8009, 19581};

std::vector<std::uint64_t> seed_counts(std::uint64_t factor) {
  std::vector<std::uint64_t> counts(kSeedCounts.begin(), kSeedCounts.end());
  for (std::uint64_t& count : counts) {
    count *= factor;
  }
  return counts;
}

// As many steps as seed_counts(factor), bucket k with k + 1 parts of 2,080.
std::vector<std::uint64_t> sixty_four_counts(std::uint64_t factor) {
  std::vector<std::uint64_t> counts(64);
  for (std::uint64_t bucket = 0; bucket < counts.size(); ++bucket) {
    counts[bucket] = 46691 * factor * (bucket + 1) / 2080;
  }
  return counts;
}

bool has_counts(const std::vector<std::uint16_t>& labels, std::vector<std::uint64_t> counts) {
  for (const std::uint16_t label : labels) {
    --counts.at(label);
  }
  return std::ranges::count(counts, 0) == std::ssize(counts);
}

// Arguments: number of buckets, factor of the counts, number of threads.
void order(benchmark::State& state, Order order) {
  const auto factor = static_cast<std::uint64_t>(state.range(1));
  const auto counts = state.range(0) == 64 ? sixty_four_counts(factor) : seed_counts(factor);
  const OrderOptions options = {
      .order = order,
      .jitter = fixed_jitter(0.25),
      .accumulation_steps = 4,
  };
  Team team(static_cast<int>(state.range(2)));
  std::uint64_t epoch = 0;
  const auto first = order_steps(counts, options, Stream::of(0, epoch), team);
  if (!has_counts(first, counts)) {
    state.SkipWithError("a bucket has too many or too few steps");
    return;
  }
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(order_steps(counts, options, Stream::of(0, ++epoch), team));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(first.size()));
}

void add_inputs(benchmark::internal::Benchmark* benchmark, std::int64_t most_factor,
                std::int64_t most_threads) {
  benchmark->ArgNames({"buckets", "x", "threads"})->Unit(benchmark::kMicrosecond)->UseRealTime();
  for (const std::int64_t buckets : {6, 64}) {
    for (std::int64_t factor = 1; factor <= most_factor; factor *= 10) {
      for (std::int64_t threads = 1; threads <= most_threads; ++threads) {
        benchmark->Args({buckets, factor, threads});
      }
    }
  }
}

void parallel(benchmark::internal::Benchmark* benchmark) {
  add_inputs(benchmark, 100, 2);
}

void quick(benchmark::internal::Benchmark* benchmark) {
  add_inputs(benchmark, 100, 1);
}

void slow(benchmark::internal::Benchmark* benchmark) {
  add_inputs(benchmark, 10, 1);
}

BENCHMARK_CAPTURE(order, stride, Order::kStride)->Apply(parallel);
BENCHMARK_CAPTURE(order, shuffle, Order::kShuffle)->Apply(quick);
BENCHMARK_CAPTURE(order, round_robin, Order::kRoundRobin)->Apply(quick);
BENCHMARK_CAPTURE(order, balanced, Order::kBalanced)->Apply(slow);
BENCHMARK_CAPTURE(order, stratified, Order::kStratified)->Apply(slow);
BENCHMARK_CAPTURE(order, anti_repeat, Order::kAntiRepeat)->Apply(slow);
BENCHMARK_CAPTURE(order, diversity, Order::kDiversity)->Apply(slow);
BENCHMARK_CAPTURE(order, diversity_2, Order::kDiversity2)->Apply(slow);

}  // namespace
}  // namespace evenstride
