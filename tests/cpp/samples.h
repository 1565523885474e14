// Small random sets of samples, and what every list of batches must keep.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/compose.h"
#include "core/fill.h"
#include "core/lengths.h"
#include "core/settle.h"

namespace evenstride::testing {

using Values = std::vector<std::uint64_t>;
using Batches = std::vector<Values>;  // The indices of each batch's samples.

// Returns an entry for each length, by index.
template <class Entry>
std::vector<Entry> entries_of(const Values& lengths) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    entries.emplace_back(lengths[i], i);
  }
  return entries;
}

// Random numbers that owe nothing to the generator under test.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t next() { return engine_(); }
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }
  bool one_in(std::uint64_t cases) { return below(cases) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Returns lengths in [0, longest]: spread evenly, few different ones, or mostly short ones.
inline Values random_lengths(Random& random, std::size_t size, std::uint64_t longest) {
  const std::uint64_t shape = random.below(3);
  Values lengths(size);
  for (std::uint64_t& length : lengths) {
    length = random.below(longest + 1);
    if (shape == 1) {
      length -= length % (longest / 3 + 1);
    } else if (shape == 2) {
      length = random.below(length + 1);
    }
  }
  return lengths;
}

// Returns limits under which no length in [0, longest] is too long.
inline FillLimits random_limits(Random& random, std::uint64_t longest) {
  FillLimits limits;
  limits.pad_to_multiple_of = random.one_in(3) ? random.between(1, 8) : 1;
  limits.token_budget = longest + limits.pad_to_multiple_of + random.below(8 * longest + 8);
  limits.max_batch_size = random.one_in(3) ? random.between(1, 9) : kUnlimited;
  limits.batch_size_multiple = random.one_in(3) ? random.between(2, 5) : 1;
  return limits;
}

// Returns strictly increasing edges in [1, longest].
inline Values random_edges(Random& random, std::size_t most, std::uint64_t longest) {
  Values edges(random.below(most + 1));
  std::generate(edges.begin(), edges.end(), [&] { return random.between(1, longest); });
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

inline StepOptions ranks(std::uint64_t num_replicas, bool drop_last = false) {
  StepOptions options;
  options.num_replicas = num_replicas;
  options.drop_last = drop_last;
  return options;
}

inline Lengths view(const Values& lengths) {
  return std::span<const std::uint64_t>(lengths);
}

__extension__ using Wide = unsigned __int128;

inline Wide padded_tokens(std::uint64_t samples, std::uint64_t longest, const FillLimits& limits) {
  const Wide multiple = limits.pad_to_multiple_of;
  const Wide width = (std::max<Wide>(1, longest) + multiple - 1) / multiple * multiple;
  return samples * width;
}

// Whether a batch may have so many samples, the longest of this length.
inline bool is_allowed(std::uint64_t samples, std::uint64_t longest, const FillLimits& limits) {
  return samples == 1 || (samples <= limits.max_batch_size && longest < limits.admitted_end &&
                          padded_tokens(samples, longest, limits) <= limits.token_budget);
}

inline std::uint64_t longest_of(const Values& batch, const Values& lengths) {
  std::uint64_t longest = 0;
  for (const std::uint64_t index : batch) {
    longest = std::max(longest, lengths.at(index));
  }
  return longest;
}

inline ::testing::AssertionResult keep_limits(const Batches& batches, const Values& lengths,
                                              const FillLimits& limits) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].empty() ||
        !is_allowed(batches[i].size(), longest_of(batches[i], lengths), limits)) {
      return ::testing::AssertionFailure()
             << "batch " << i << " has " << batches[i].size() << " samples, the longest of length "
             << longest_of(batches[i], lengths);
    }
  }
  return ::testing::AssertionSuccess();
}

// Returns the indices of all batches, in their order.
inline Values joined(const Batches& batches) {
  Values indices;
  for (const Values& batch : batches) {
    indices.insert(indices.end(), batch.begin(), batch.end());
  }
  return indices;
}

inline Values sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

// Returns 0, 1, ..., size - 1.
inline Values indices_below(std::size_t size) {
  Values indices(size);
  for (std::size_t i = 0; i < size; ++i) {
    indices[i] = i;
  }
  return indices;
}

template <class Entry>
Batches indices_of(const LargeVector<Batch<Entry>>& batches) {
  Batches result;
  for (const Batch<Entry>& batch : batches) {
    Values& indices = result.emplace_back();
    for (std::size_t i = 0; i < batch.count; ++i) {
      indices.push_back(batch.index(i));
    }
  }
  return result;
}

// Returns how far counts that are equally likely are from equal, as chi-square less its mean, in
// standard deviations. Precondition: there are at least two.
inline double unevenness(const Values& counts) {
  double sum = 0;
  for (const std::uint64_t count : counts) {
    sum += static_cast<double>(count);
  }
  const double expected = sum / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const std::uint64_t count : counts) {
    chi_square += std::pow(static_cast<double>(count) - expected, 2) / expected;
  }
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

// Returns what the exception that `call` throws has to say.
template <class Exception = std::invalid_argument, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace evenstride::testing
