// Times the histogram of 902,087 lengths, beside a plain loop over one table of counts.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/histogram.h"
#include "core/random.h"

namespace evenstride {
namespace {

constexpr std::size_t kNumSamples = 902087;
constexpr std::uint64_t kLongest = 8187;

template <class Length>
std::vector<Length> random_lengths(std::uint64_t longest) {
  Draws draws(Stream::of(0, longest));
  std::vector<Length> lengths(kNumSamples);
  std::generate(lengths.begin(), lengths.end(),
                [&] { return static_cast<Length>(draws.below(longest + 1)); });
  return lengths;
}

template <class Length>
std::vector<Length> sorted_lengths() {
  auto lengths = random_lengths<Length>(kLongest);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

template <class Length>
std::vector<Length> two_lengths() {
  auto lengths = random_lengths<Length>(1);
  for (Length& length : lengths) {
    length = length == 0 ? Length{17} : static_cast<Length>(kLongest);
  }
  return lengths;
}

// Precondition: no length is above 2^24.
template <class Length>
LengthHistogram plain_histogram(const std::vector<Length>& lengths) {
  std::vector<std::uint64_t> table(std::size_t{1} << 24);
  for (const Length length : lengths) {
    ++table[static_cast<std::size_t>(length)];
  }
  LengthHistogram histogram;
  for (std::size_t length = 0; length < table.size(); ++length) {
    if (table[length] != 0) {
      histogram.lengths.push_back(length);
      histogram.counts.push_back(table[length]);
    }
  }
  return histogram;
}

template <class Length>
void add(const std::string& name, const std::vector<Length>& lengths) {
  for (const int num_threads : {1, 2}) {
    const auto body = [=](benchmark::State& state) {
      Team team(num_threads);
      const std::span<const Length> view(lengths);
      if (length_histogram(view, team) != plain_histogram(lengths)) {
        state.SkipWithError("the histogram is wrong");
        return;
      }
      for (auto _ : state) {
        benchmark::DoNotOptimize(length_histogram(view, team));
      }
      const auto flags =
          benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert;
      state.counters["a_sample"] = benchmark::Counter(static_cast<double>(lengths.size()), flags);
    };
    benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(num_threads)).c_str(), body)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void add_plain_loop(const std::vector<std::int64_t>& lengths) {
  benchmark::RegisterBenchmark("plain_loop/int64/random", [=](benchmark::State& state) {
    std::vector<std::uint64_t> table(kLongest + 1);
    for (auto _ : state) {
      std::fill(table.begin(), table.end(), 0);
      for (const std::int64_t length : lengths) {
        ++table[static_cast<std::size_t>(length)];
      }
      benchmark::ClobberMemory();
    }
  })->Unit(benchmark::kMicrosecond);
}

template <class Length>
void add_all(const std::string& type) {
  add(type + "/random", random_lengths<Length>(kLongest));
  add(type + "/sorted", sorted_lengths<Length>());
  add(type + "/equal", std::vector<Length>(kNumSamples, Length{1000}));
  add(type + "/two_values", two_lengths<Length>());
}

void register_benchmarks() {
  add_plain_loop(random_lengths<std::int64_t>(kLongest));
  add_all<std::uint16_t>("uint16");
  add_all<std::int64_t>("int64");
  add("int64/up_to_1M", random_lengths<std::int64_t>((1 << 20) - 1));
  add("int64/up_to_16M_sorted_in_part", random_lengths<std::int64_t>((1 << 24) - 1));
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
