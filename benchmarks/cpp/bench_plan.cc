// Times whole plans of 10^5 to 10^8 samples, with the memory that they take beyond the lengths.
#include <benchmark/benchmark.h>
#ifdef __linux__
#include <unistd.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "core/plan.h"
#include "inputs.h"
#include "peak_memory.h"

namespace evenstride {
namespace {

constexpr std::int64_t kLargest = 100'000'000;
constexpr std::uint64_t kMemoryOfLargest = std::uint64_t{4} << 30;

std::uint64_t available_memory() {
#ifdef __linux__
  return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
#else
  return 0;
#endif
}

// Whether each sample is in one batch of its bucket, within the limits.
bool is_right(const EpochPlan& plan, const std::vector<std::uint16_t>& lengths,
              const std::vector<std::uint64_t>& edges) {
  const FillLimits limits = given_limits();
  const auto& indices = std::get<Buffer<std::uint32_t>>(plan.indices);
  const auto& widths = std::get<Buffer<std::int32_t>>(plan.widths);
  std::vector<bool> seen(lengths.size());
  if (indices.size() != lengths.size()) {
    return false;
  }
  for (std::size_t batch = 0; batch + 1 < plan.offsets.size(); ++batch) {
    const auto begin = static_cast<std::size_t>(plan.offsets[batch]);
    const auto end = static_cast<std::size_t>(plan.offsets[batch + 1]);
    const auto bucket = static_cast<std::size_t>(plan.buckets[batch]);
    std::uint64_t longest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t length = lengths.at(indices[i]);
      if (seen[indices[i]] || length < edges.at(bucket) || length >= edges.at(bucket + 1)) {
        return false;
      }
      seen[indices[i]] = true;
      longest = std::max(longest, length);
    }
    if (static_cast<std::uint64_t>(widths[batch]) != longest ||
        (end - begin) * longest > limits.token_budget || end - begin > limits.max_batch_size) {
      return false;
    }
  }
  return true;
}

// Arguments: number of samples, number of threads.
void plan(benchmark::State& state, Composition composition) {
  const auto lengths = lognormal_lengths(static_cast<std::size_t>(state.range(0)));
  PlanOptions options;
  options.limits = given_limits();
  options.composition = composition;
  options.jitter = fixed_jitter(0.25);
  options.num_threads = static_cast<int>(state.range(1));
  const PeakMemory peak;
  Planner planner(std::span<const std::uint16_t>(lengths), given_edges(), options);
  std::size_t num_batches = 0;
  {
    const EpochPlan first = planner.plan(0, {});
    // Of small plans it would say more of the size of a page.
    if (const auto bytes = peak.bytes(); bytes && lengths.size() >= 1'000'000) {
      state.counters["peak_bytes_a_sample"] =
          static_cast<double>(*bytes) / static_cast<double>(lengths.size());
    }
    if (!is_right(first, lengths, planner.edges())) {
      state.SkipWithError("the plan is wrong");
      return;
    }
    num_batches = first.buckets.size();
  }
  std::uint64_t epoch = 0;
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(planner.plan(++epoch, {}));
  }
  count_samples(state, lengths.size());
  state.counters["samples_a_batch"] =
      static_cast<double>(lengths.size()) / static_cast<double>(num_batches);
}

void add(const char* name, Composition composition) {
  const auto body = [=](benchmark::State& state) { plan(state, composition); };
  const auto add_size = [&](std::int64_t samples) {
    auto* const sized = benchmark::RegisterBenchmark(name, body)
                            ->ArgNames({"samples", "threads"})
                            ->Unit(benchmark::kMillisecond)
                            ->UseRealTime();
    for (const std::int64_t threads : {1, 2}) {
      sized->Args({samples, threads});
    }
    return sized;
  };
  for (const std::int64_t samples : {100'000, 1'000'000, 10'000'000}) {
    add_size(samples);
  }
  // Rather left out than to have the system end the process.
  if (available_memory() >= kMemoryOfLargest) {
    add_size(kLargest)->Iterations(1);
  }
}

}  // namespace
}  // namespace evenstride

int main(int argc, char** argv) {
  evenstride::add("plan/shuffle", evenstride::Composition::kShuffle);
  evenstride::add("plan/window", evenstride::Composition::kWindow);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
