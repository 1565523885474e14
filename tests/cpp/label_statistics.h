// What the tests of orders measure on a sequence of bucket labels, computed the plain way.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "core/random.h"

namespace evenstride::testing {

using Counts = std::vector<std::uint64_t>;
using Labels = std::vector<std::uint16_t>;

// Steps of each bucket of `data/`.
inline const Counts& seed_counts() {
  static const Counts kCounts = {2120, 4017, 5471, 7493, 8009, 19581};
  return kCounts;
}

inline std::uint64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

inline Counts counts_of(std::span<const std::uint16_t> labels, std::size_t num_buckets) {
  Counts counts(num_buckets);
  for (const std::uint16_t label : labels) {
    ++counts.at(label);
  }
  return counts;
}

// Returns the greatest abs(steps of a bucket among the first t - t * its share) of each bucket,
// over the multiples t of group_size, and the end.
inline std::vector<double> discrepancies(const Labels& labels, const Counts& counts,
                                         std::size_t group_size = 1) {
  const auto total = static_cast<double>(labels.size());
  std::vector<double> worst(counts.size());
  Counts seen(counts.size());
  for (std::size_t t = 1; t <= labels.size(); ++t) {
    ++seen.at(labels[t - 1]);
    if (t % group_size == 0 || t == labels.size()) {
      for (std::size_t k = 0; k < counts.size(); ++k) {
        const double due = static_cast<double>(t) * static_cast<double>(counts[k]) / total;
        worst[k] = std::max(worst[k], std::abs(static_cast<double>(seen[k]) - due));
      }
    }
  }
  return worst;
}

inline double discrepancy(const Labels& labels, const Counts& counts, std::size_t group_size = 1) {
  const std::vector<double> worst = discrepancies(labels, counts, group_size);
  return worst.empty() ? 0.0 : std::ranges::max(worst);
}

// Returns the lengths of the runs of one label, in order.
inline std::vector<std::size_t> runs(const Labels& labels) {
  std::vector<std::size_t> lengths;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    if (t == 0 || labels[t] != labels[t - 1]) {
      lengths.push_back(0);
    }
    ++lengths.back();
  }
  return lengths;
}

inline std::size_t longest_run(const Labels& labels) {
  const std::vector<std::size_t> lengths = runs(labels);
  return lengths.empty() ? 0 : std::ranges::max(lengths);
}

// Returns the share of the steps that are in runs of one.
inline double share_in_runs_of_one(const Labels& labels) {
  const std::vector<std::size_t> lengths = runs(labels);
  return static_cast<double>(std::ranges::count(lengths, 1U)) / static_cast<double>(labels.size());
}

// Returns the share of the steps that have the same label in both. Precondition: equal sizes.
inline double agreement(const Labels& left, const Labels& right) {
  std::size_t equal = 0;
  for (std::size_t t = 0; t < left.size(); ++t) {
    equal += left[t] == right[t] ? 1U : 0U;
  }
  return static_cast<double>(equal) / static_cast<double>(left.size());
}

// Returns the mean number of different labels in a whole group.
inline double distinct_in_a_group(const Labels& labels, std::size_t group_size) {
  const std::size_t num_groups = labels.size() / group_size;
  std::size_t distinct = 0;
  for (std::size_t group = 0; group < num_groups; ++group) {
    const auto first = labels.begin() + static_cast<std::ptrdiff_t>(group * group_size);
    Labels members(first, first + static_cast<std::ptrdiff_t>(group_size));
    std::ranges::sort(members);
    distinct += group_size - std::ranges::unique(members).size();
  }
  return static_cast<double>(distinct) / static_cast<double>(num_groups);
}

// Returns the FNV-1a hash of the labels, low byte first.
inline std::uint64_t hash(const Labels& labels) {
  std::uint64_t value = 0xCBF29CE484222325;
  for (const std::uint16_t label : labels) {
    value = (value ^ (label & 0xFFU)) * 0x100000001B3;
    value = (value ^ (label >> 8U)) * 0x100000001B3;
  }
  return value;
}

// Returns counts of one of these kinds: any, equal ones, mostly zeros, powers of two, one that
// dominates. At most 64 buckets and about 2,000 steps.
inline Counts random_counts(Draws& random) {
  Counts counts(1 + random.below(random.below(2) == 0 ? 6 : 64));
  const std::uint64_t kind = random.below(5);
  const std::uint64_t most = 1 + random.below(2000 / counts.size());
  for (std::uint64_t& count : counts) {
    switch (kind) {
      case 0:
        count = random.below(most + 1);
        break;
      case 1:
        count = most;
        break;
      case 2:
        count = random.below(4) == 0 ? random.below(most + 1) : 0;
        break;
      case 3:
        count = std::uint64_t{1} << random.below(6);
        break;
      default:
        count = random.below(4);
        break;
    }
  }
  if (kind == 4) {
    counts[random.below(counts.size())] = 1 + random.below(2000);
  }
  return counts;
}

}  // namespace evenstride::testing
