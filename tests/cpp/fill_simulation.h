// Synthetic lengths, and the padding that the real fill makes of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "core/fill.h"
#include "core/histogram.h"
#include "core/random.h"
#include "core/threads.h"

namespace evenstride::testing {

struct Sample {
  std::uint64_t tokens;

  [[nodiscard]] std::uint64_t length() const { return tokens; }
};

inline LengthHistogram histogram_of(const std::vector<std::uint64_t>& lengths) {
  Team team(1);
  return length_histogram(std::span<const std::uint64_t>(lengths), team);
}

// Returns lengths in [1, longest] whose logarithms are normal around that of `median`.
inline std::vector<std::uint64_t> lognormal_lengths(std::size_t size, double median, double sigma,
                                                    std::uint64_t longest) {
  const Stream stream = Stream::of(600, size);
  const auto uniform = [&](std::size_t i) {
    return (static_cast<double>(stream(i) >> 11) + 0.5) * 0x1p-53;
  };
  std::vector<std::uint64_t> lengths(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform(2 * i))) *
                          std::cos(2 * std::numbers::pi * uniform(2 * i + 1));
    const double length = median * std::exp(sigma * normal);
    lengths[i] = static_cast<std::uint64_t>(std::clamp(length, 1.0, static_cast<double>(longest)));
  }
  return lengths;
}

// Returns the padded tokens of the lengths in [begin, end), shuffled and filled.
inline double padded_tokens(const LengthHistogram& histogram, const FillLimits& limits,
                            std::uint64_t begin, std::uint64_t end, std::uint64_t seed) {
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < histogram.lengths.size(); ++i) {
    if (histogram.lengths[i] >= begin && histogram.lengths[i] < end) {
      samples.insert(samples.end(), histogram.counts[i], Sample{histogram.lengths[i]});
    }
  }
  shuffle(std::span(samples), Draws(Stream::of(seed, begin)));
  double padded = 0;
  fill_all(std::span<const Sample>(samples), LengthBounds(limits, samples.size()),
           [&](const Cut& cut) {
             padded += static_cast<double>(cut.end - cut.begin) *
                       static_cast<double>(width_of(cut.longest, limits.pad_to_multiple_of));
           });
  return padded;
}

// Returns real tokens / padded tokens with these inner edges.
inline double padding_efficiency(const LengthHistogram& histogram, const FillLimits& limits,
                                 std::vector<std::uint64_t> edges) {
  double tokens = 0;
  for (std::size_t i = 0; i < histogram.lengths.size(); ++i) {
    tokens += static_cast<double>(histogram.lengths[i]) * static_cast<double>(histogram.counts[i]);
  }
  double padded = 0;
  std::uint64_t begin = 0;
  edges.push_back(std::numeric_limits<std::uint64_t>::max());
  for (const std::uint64_t end : edges) {
    padded += padded_tokens(histogram, limits, begin, end, 1);
    begin = end;
  }
  return tokens / padded;
}

}  // namespace evenstride::testing
