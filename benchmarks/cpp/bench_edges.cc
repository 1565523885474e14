// Times `optimal_edges` on skewed lengths up to 8 k and up to 1 M, for 6 to 1,000 buckets.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/edges.h"
#include "core/random.h"

namespace evenstride {
namespace {

LengthHistogram skewed_histogram(std::uint64_t longest) {
  Draws draws(Stream::of(0, longest));
  std::vector<std::uint64_t> lengths(902087);
  std::generate(lengths.begin(), lengths.end(),
                [&] { return 1 + draws.below(1 + draws.below(longest)); });
  Team team(1);
  return length_histogram(std::span<const std::uint64_t>(lengths), team);
}

void time_edges(benchmark::State& state, const LengthHistogram& histogram,
                std::uint64_t num_buckets, const FillLimits& limits, int num_threads) {
  Team team(num_threads);
  const std::vector<std::uint64_t> edges = optimal_edges(histogram, num_buckets, limits, team);
  if (edges.empty() || edges.size() >= num_buckets ||
      !std::is_sorted(edges.begin(), edges.end(), std::less_equal<>())) {
    state.SkipWithError("the edges are wrong");
    return;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(optimal_edges(histogram, num_buckets, limits, team));
  }
  state.counters["buckets"] = static_cast<double>(edges.size() + 1);
}

void add(const std::string& name, const LengthHistogram& histogram, const FillLimits& limits) {
  for (const std::uint64_t num_buckets : {6U, 16U, 64U, 256U, 1000U}) {
    for (const int num_threads : {1, 2}) {
      const std::string full_name = name + "/buckets:" + std::to_string(num_buckets) +
                                    "/threads:" + std::to_string(num_threads);
      const auto body = [=](benchmark::State& state) {
        time_edges(state, histogram, num_buckets, limits, num_threads);
      };
      benchmark::RegisterBenchmark(full_name.c_str(), body)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

void register_benchmarks() {
  const LengthHistogram short_ones = skewed_histogram(8192);
  add("up_to_8k", short_ones, {.token_budget = 49152, .max_batch_size = 64});
  add("up_to_8k/multiples", short_ones,
      {.token_budget = 49152,
       .max_batch_size = 64,
       .batch_size_multiple = 8,
       .pad_to_multiple_of = 64});
  add("up_to_1M", skewed_histogram(1 << 20), {.token_budget = 1 << 22, .max_batch_size = 64});
}

}  // namespace
}  // namespace evenstride

int main(int argc, char** argv) {
  evenstride::register_benchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
