// Times the greedy fill of shuffled and of sorted samples, beside a loop that tests every sample.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/entries.h"
#include "core/fill.h"
#include "core/sort.h"
#include "inputs.h"

namespace evenstride {
namespace {

// Arguments: number of samples, token budget, whether they are sorted.
struct Input {
  std::vector<PackedEntry> entries;
  FillLimits limits;

  explicit Input(const benchmark::State& state) : limits(given_limits()) {
    const auto lengths = lognormal_lengths(static_cast<std::size_t>(state.range(0)));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      entries.emplace_back(lengths[i], i);
    }
    limits.token_budget = static_cast<std::uint64_t>(state.range(1));
    limits.max_batch_size = kUnlimited;
    if (state.range(2) != 0) {
      std::vector<PackedEntry> scratch(entries.size());
      sort_by_length(std::span(entries), std::span(scratch), Direction::kUp);
    }
  }

  [[nodiscard]] std::span<const PackedEntry> view() const { return entries; }
};

// A batch's end and longest length.
struct Bound {
  std::size_t end;
  std::uint64_t longest;

  friend bool operator==(const Bound&, const Bound&) = default;
};

void plain_fill(std::span<const PackedEntry> entries, std::uint64_t token_budget,
                std::vector<Bound>& bounds) {
  bounds.clear();
  std::size_t begin = 0;
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t longest_with = std::max(longest, entries[i].length());
    if (i > begin && (i - begin + 1) * longest_with > token_budget) {
      bounds.push_back({i, longest});
      begin = i;
      longest = entries[i].length();
    } else {
      longest = longest_with;
    }
  }
  if (begin < entries.size()) {
    bounds.push_back({entries.size(), longest});
  }
}

void core_fill(std::span<const PackedEntry> entries, const FillLimits& limits,
               std::vector<Bound>& bounds) {
  bounds.clear();
  fill_all(entries, LengthBounds(limits, entries.size()),
           [&](const Cut& cut) { bounds.push_back({cut.end, cut.longest}); });
}

void fill(benchmark::State& state) {
  const Input input(state);
  std::vector<Bound> bounds;
  std::vector<Bound> expected;
  core_fill(input.view(), input.limits, bounds);
  plain_fill(input.view(), input.limits.token_budget, expected);
  if (bounds != expected) {
    state.SkipWithError("the batches are wrong");
    return;
  }
  while (state.KeepRunning()) {
    core_fill(input.view(), input.limits, bounds);
    benchmark::DoNotOptimize(bounds.data());
  }
  count_samples(state, input.entries.size());
  state.counters["samples_a_batch"] =
      static_cast<double>(input.entries.size()) / static_cast<double>(bounds.size());
}

void fill_plain(benchmark::State& state) {
  const Input input(state);
  std::vector<Bound> bounds;
  while (state.KeepRunning()) {
    plain_fill(input.view(), input.limits.token_budget, bounds);
    benchmark::DoNotOptimize(bounds.data());
  }
  count_samples(state, input.entries.size());
}

// About 4, 15 and 140 samples a batch where they are shuffled.
void inputs(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"samples", "budget", "sorted"})->Unit(benchmark::kMicrosecond);
  for (const std::int64_t samples : {100'000, 1'000'000, 10'000'000}) {
    for (const std::int64_t budget : {16'384, 65'536, 1'048'576}) {
      benchmark->Args({samples, budget, 0});
    }
  }
  benchmark->Args({1'000'000, 65'536, 1});
}

BENCHMARK(fill)->Apply(inputs);
BENCHMARK(fill_plain)->Apply(inputs);

}  // namespace
}  // namespace evenstride
