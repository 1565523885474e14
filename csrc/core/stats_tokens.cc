// The real tokens of batches: one random read of `lengths` a sample.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "core/stats.h"

namespace evenstride {
namespace {

constexpr std::size_t kBatchesPerTask = 4096;

void check_offsets(std::span<const std::int64_t> offsets, std::size_t num_indices) {
  if (offsets.empty()) {
    throw std::invalid_argument("`offsets` must have at least 1 entry, but has 0.");
  }
  std::int64_t least = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < least) {
      throw std::invalid_argument("`offsets[" + std::to_string(i) + "]` must be at least " +
                                  std::to_string(least) + ", but is " + std::to_string(offsets[i]) +
                                  ".");
    }
    least = offsets[i];
  }
  if (std::cmp_greater(least, num_indices)) {
    throw std::invalid_argument("`offsets[" + std::to_string(offsets.size() - 1) +
                                "]` must be at most the number of indices, " +
                                std::to_string(num_indices) + ", but is " + std::to_string(least) +
                                ".");
  }
}

template <class Length, class Index>
void sum_batches(std::span<const Length> lengths, std::span<const Index> indices,
                 std::span<const std::int64_t> offsets, std::size_t first, std::size_t last,
                 std::vector<std::uint64_t>& tokens, const Watch& watch) {
  // The reads do not wait for one another, so that to prefetch them would gain nothing.
  const auto index = [&](std::size_t i) {
    return static_cast<std::uint64_t>(indices[i]);  // Huge if it is negative.
  };
  StepCheck check(watch);
  for (std::size_t batch = first; batch < last; ++batch) {
    std::uint64_t sum = 0;
    const auto batch_end = static_cast<std::size_t>(offsets[batch + 1]);
    check(static_cast<std::size_t>(offsets[batch + 1] - offsets[batch]));
    for (auto i = static_cast<std::size_t>(offsets[batch]); i < batch_end; ++i) {
      if (index(i) >= lengths.size()) {
        throw std::invalid_argument("`indices[" + std::to_string(i) + "]` must be in [0, " +
                                    std::to_string(lengths.size()) + "), but is " +
                                    std::to_string(indices[i]) + ".");
      }
      sum += static_cast<std::uint64_t>(lengths[static_cast<std::size_t>(index(i))]);
    }
    tokens[batch] = sum;
  }
}

}  // namespace

std::vector<std::uint64_t> batch_tokens(const Lengths& lengths, const IndexView& indices,
                                        std::span<const std::int64_t> offsets, Team& team) {
  check_offsets(offsets, std::visit([](const auto& values) { return values.size(); }, indices));
  const std::size_t num_batches = offsets.size() - 1;
  std::vector<std::uint64_t> tokens(num_batches);
  std::visit(
      [&](const auto& length_values, const auto& index_values) {
        team.for_each(
            (num_batches + kBatchesPerTask - 1) / kBatchesPerTask, [&](std::size_t task, int) {
              const std::size_t first = task * kBatchesPerTask;
              sum_batches(length_values, index_values, offsets, first,
                          std::min(first + kBatchesPerTask, num_batches), tokens, team.watch());
            });
      },
      lengths, indices);
  return tokens;
}

}  // namespace evenstride
