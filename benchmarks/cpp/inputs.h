// Lengths to plan, and what the benchmarks of planning say about them.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "core/fill.h"
#include "core/random.h"

namespace evenstride {

inline constexpr std::uint64_t kShortest = 40;
inline constexpr std::uint64_t kLongest = 8187;

inline std::vector<std::uint64_t> given_edges() {
  return {770, 1216, 1728, 2432, 3296};
}

inline FillLimits given_limits() {
  FillLimits limits;
  limits.token_budget = 49'152;
  limits.max_batch_size = 64;
  return limits;
}

// Returns lengths with a mean of about 2,000, whose logarithms are normal: draws from 2^16 of them,
// since 100 million logarithms would take longer than all that is timed.
inline std::vector<std::uint16_t> lognormal_lengths(std::size_t size) {
  constexpr double kMedian = 1700;
  constexpr double kSigma = 0.55;
  const Stream normals(1);
  const auto uniform = [&](std::uint64_t i) {
    return (static_cast<double>(normals(i) >> 11) + 0.5) * 0x1p-53;
  };
  std::vector<std::uint16_t> drawn(1 << 16);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform(2 * i))) *
                          std::cos(2 * std::numbers::pi * uniform(2 * i + 1));
    const double length = kMedian * std::exp(kSigma * normal);
    drawn[i] = static_cast<std::uint16_t>(
        std::clamp(length, static_cast<double>(kShortest), static_cast<double>(kLongest)));
  }
  const Stream stream(size);
  std::vector<std::uint16_t> lengths(size);
  for (std::size_t i = 0; i < size; ++i) {
    lengths[i] = drawn[static_cast<std::size_t>(stream(i) >> 48)];
  }
  return lengths;
}

// Adds nanoseconds a sample, as seconds that are printed with their unit's prefix.
inline void count_samples(benchmark::State& state, std::size_t samples) {
  state.counters["a_sample"] = benchmark::Counter(
      static_cast<double>(samples),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

}  // namespace evenstride
