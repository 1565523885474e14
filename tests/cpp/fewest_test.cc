// The fewest batches against an exhaustive search over all partitions.
#include "core/fewest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/threads.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;
using testing::Values;

// Tries every set of samples as the batch of the first sample that is left.
std::uint64_t fewest_by_search(const Values& lengths, const FillLimits& limits) {
  const std::size_t num_sets = std::size_t{1} << lengths.size();
  std::vector<bool> allowed(num_sets);
  for (std::size_t set = 1; set < num_sets; ++set) {
    std::uint64_t longest = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      longest = std::max(longest, (set >> i & 1) != 0 ? lengths[i] : 0);
    }
    allowed[set] =
        testing::is_allowed(static_cast<std::uint64_t>(std::popcount(set)), longest, limits);
  }
  Values fewest(num_sets, kUnlimited);
  fewest[0] = 0;
  for (std::size_t set = 1; set < num_sets; ++set) {
    const std::size_t first = set & (~set + 1);
    for (std::size_t batch = set; batch > 0; batch = (batch - 1) & set) {
      if ((batch & first) != 0 && allowed[batch]) {
        fewest[set] = std::min(fewest[set], 1 + fewest[set ^ batch]);
      }
    }
  }
  return fewest.back();
}

Values fewest_of(const Values& lengths, const Classes& classes, const FillLimits& limits) {
  Team team(1);
  return fewest_batches(length_histogram(testing::view(lengths), team), classes, limits);
}

TEST(Fewest, NoPartitionHasFewerBatches) {
  Random random(1);
  for (int trial = 0; trial < 600; ++trial) {
    const std::uint64_t longest = random.between(1, 12);
    const Values lengths = testing::random_lengths(random, random.between(1, 9), longest);
    const FillLimits limits = testing::random_limits(random, longest);
    const Classes classes({}, limits, {}, lengths.size());
    FillLimits single = limits;
    single.batch_size_multiple = 1;
    ASSERT_EQ(fewest_of(lengths, classes, limits), Values{fewest_by_search(lengths, single)})
        << "trial " << trial;
  }
}

TEST(Fewest, BucketsAreCountedApartAndOthersNot) {
  Random random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const Values lengths = testing::random_lengths(random, random.between(1, 16), 12);
    const Values edges = testing::random_edges(random, 3, 12);
    FillLimits limits = testing::random_limits(random, 8);
    limits.batch_size_multiple = 1;
    const Admission admission = {.max_length = random.between(4, 12),
                                 .too_long = random.one_in(2) ? TooLong::kDrop : TooLong::kAlone,
                                 .empty = random.one_in(2) ? Empty::kDrop : Empty::kKeep};
    const Classes classes(edges, limits, admission, lengths.size());
    Values expected;
    for (std::size_t k = 0; k < classes.num_buckets(); ++k) {
      Values own;
      std::ranges::copy_if(lengths, std::back_inserter(own),
                           [&](std::uint64_t length) { return classes(length) == k; });
      expected.push_back(own.size() > 9 ? kUnlimited : fewest_by_search(own, limits));
    }
    const Values found = fewest_of(lengths, classes, limits);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (expected[k] != kUnlimited) {
        ASSERT_EQ(found[k], expected[k]) << "trial " << trial << ", bucket " << k;
      }
    }
  }
}

// Sets that are too large for a search, against the greedy fill of rising lengths.
TEST(Fewest, CountsOfMillionsAreThoseOfAFill) {
  const FillLimits limits = {.token_budget = 1000, .max_batch_size = 300};
  const LengthHistogram histogram = {.lengths = {0, 1, 3, 400, 1000},
                                     .counts = {1'000'000, 100, 2'000'000, 7, 3}};
  // 3,334 batches hold all of lengths 0 and 1. The last of them has 200 and takes 100 of length 3.
  const std::uint64_t rest = 2'000'000 - 100;
  const std::uint64_t of_three = rest / 300 + 1;
  ASSERT_GT(rest % 300, 2U);
  EXPECT_EQ(fewest_batches(histogram, Classes({}, limits, {}, 100), limits),
            Values{3334 + of_three + 4 + 3});
}

}  // namespace
}  // namespace evenstride
