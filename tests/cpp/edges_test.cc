// `optimal_edges`: the best choice by its own costs, the figures it reaches, and odd inputs.
#include "core/edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/edges_cost.h"
#include "fill_simulation.h"

namespace evenstride {
namespace {

using testing::histogram_of;
using testing::lognormal_lengths;
using testing::padding_efficiency;

using Edges = std::vector<std::uint64_t>;

constexpr std::uint64_t kTop = std::numeric_limits<std::int64_t>::max();

Edges edges_of(const LengthHistogram& histogram, std::uint64_t num_buckets,
               const FillLimits& limits, int num_threads = 1) {
  Team team(num_threads);
  return optimal_edges(histogram, num_buckets, limits, team);
}

void expect_error(const LengthHistogram& histogram, std::uint64_t num_buckets,
                  const std::string& sentence, const FillLimits& limits = {.token_budget = 100}) {
  try {
    static_cast<void>(edges_of(histogram, num_buckets, limits));
    ADD_FAILURE() << "nothing thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), sentence);
  }
}

void expect_well_formed(const Edges& edges, const LengthHistogram& histogram,
                        std::uint64_t num_buckets, const FillLimits& limits) {
  EXPECT_LT(edges.size(), num_buckets);
  EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end(), std::less_equal<>()));
  for (const std::uint64_t edge : edges) {
    EXPECT_GT(edge, histogram.lengths.front());
    EXPECT_GE(edge, 2U);
    EXPECT_LE(edge, histogram.lengths.back());
    EXPECT_NE(width_of(edge - 1, limits.pad_to_multiple_of),
              width_of(edge, limits.pad_to_multiple_of));
  }
}

// The least cost of at most `num_buckets` buckets of the widths from `first` on, by trying all.
std::uint64_t least_cost(const BucketCosts& costs, std::size_t first, std::size_t num_widths,
                         std::uint64_t num_buckets) {
  if (first == num_widths) {
    return 0;
  }
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max() / 4;
  for (std::size_t last = first + 1; num_buckets > 0 && last <= num_widths; ++last) {
    least =
        std::min(least, costs(first, last) + least_cost(costs, last, num_widths, num_buckets - 1));
  }
  return least;
}

std::uint64_t cost_of(const BucketCosts& costs, const WidthHistogram& widths, const Edges& edges) {
  std::uint64_t cost = 0;
  std::size_t first = 0;
  for (const std::uint64_t edge : edges) {
    const auto last = static_cast<std::size_t>(
        std::lower_bound(widths.widths.begin(), widths.widths.end(), edge) - widths.widths.begin());
    cost += costs(first, last);
    first = last;
  }
  return cost + costs(first, widths.widths.size());
}

// Skewed lengths that integers alone make, so that golden edges can be pinned.
std::vector<std::uint64_t> skewed_lengths(std::size_t size, std::uint64_t longest) {
  Draws draws(Stream::of(1, longest));
  std::vector<std::uint64_t> lengths(size);
  std::generate(lengths.begin(), lengths.end(),
                [&] { return 1 + draws.below(1 + draws.below(longest)); });
  return lengths;
}

TEST(OptimalEdges, AreTheBestOfAllChoicesByTheirCosts) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Draws draws(Stream::of(2, seed));
    const std::size_t num_lengths = 1 + draws.below(11);
    LengthHistogram histogram;
    std::uint64_t length = draws.below(5);
    for (std::size_t i = 0; i < num_lengths; ++i) {
      length += 1 + draws.below(40);
      histogram.lengths.push_back(length);
      histogram.counts.push_back(1 + draws.below(draws.below(3) == 0 ? 20000 : 300));
    }
    const FillLimits limits = {.token_budget = length + draws.below(2000),
                               .max_batch_size = 1 + draws.below(64)};
    const WidthHistogram widths = width_histogram(histogram, 1);
    const BucketCosts costs(widths, limits, 1024);
    for (std::uint64_t num_buckets = 1; num_buckets <= 6; ++num_buckets) {
      const Edges edges = edges_of(histogram, num_buckets, limits);
      expect_well_formed(edges, histogram, num_buckets, limits);
      const auto least =
          static_cast<double>(least_cost(costs, 0, widths.widths.size(), num_buckets));
      // A bucket counts as dear as its dearest part, which the draws seldom contradict, and little.
      EXPECT_LE(static_cast<double>(cost_of(costs, widths, edges)), least * 1.002)
          << seed << " " << num_buckets;
    }
  }
}

TEST(OptimalEdges, ReachTheFiguresOfALongTailedSet) {
  const LengthHistogram histogram = histogram_of(lognormal_lengths(400000, 600, 1, 65536));
  const FillLimits limits = {.token_budget = 65536, .max_batch_size = 256};
  EXPECT_GE(padding_efficiency(histogram, limits, edges_of(histogram, 6, limits)), 0.7247);
  EXPECT_GE(padding_efficiency(histogram, limits, edges_of(histogram, 8, limits)), 0.7800);
  EXPECT_GE(padding_efficiency(histogram, limits, edges_of(histogram, 16, limits)), 0.8785);
}

TEST(OptimalEdges, MakeMoreBucketsNoWorse) {
  const LengthHistogram histogram = histogram_of(lognormal_lengths(30000, 600, 1, 8192));
  const FillLimits limits = {.token_budget = 16384, .max_batch_size = 64};
  double last = 0;
  for (const std::uint64_t num_buckets : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 32U, 64U}) {
    const double efficiency =
        padding_efficiency(histogram, limits, edges_of(histogram, num_buckets, limits));
    EXPECT_GE(efficiency, last - 0.001) << num_buckets;
    last = efficiency;
  }
  EXPECT_GE(last, 0.95);
}

TEST(OptimalEdges, DoNotGiveAHeavyLengthABucketOfItsOwnForNothing) {
  std::vector<std::uint64_t> lengths = lognormal_lengths(80000, 1200, 0.8, 8100);
  lengths.insert(lengths.end(), 20000, 8192);
  const LengthHistogram histogram = histogram_of(lengths);
  const FillLimits limits = {.token_budget = 49152, .max_batch_size = 64};
  std::vector<std::uint64_t> rest(lengths.begin(), lengths.begin() + 80000);
  Edges alone = edges_of(histogram_of(rest), 5, limits);
  alone.push_back(8192);
  EXPECT_GE(padding_efficiency(histogram, limits, edges_of(histogram, 6, limits)),
            padding_efficiency(histogram, limits, alone));
}

TEST(OptimalEdges, ArePinned) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(50000, 4096));
  const FillLimits limits = {.token_budget = 16384, .max_batch_size = 64};
  EXPECT_EQ(edges_of(histogram, 6, limits), Edges({223, 585, 1026, 1563, 2417}));
  EXPECT_EQ(edges_of(histogram_of(skewed_lengths(3000, 4096)), 4,
                     {.token_budget = 16384, .batch_size_multiple = 8, .pad_to_multiple_of = 64}),
            Edges({449, 1153, 1985}));
}

TEST(OptimalEdges, AreTheSameForEveryNumberOfThreads) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(50000, 4096));
  const FillLimits limits = {.token_budget = 16384};
  const Edges edges = edges_of(histogram, 12, limits);
  EXPECT_EQ(edges.size(), 11U);
  for (int num_threads = 2; num_threads <= 4; ++num_threads) {
    EXPECT_EQ(edges_of(histogram, 12, limits, num_threads), edges);
  }
}

TEST(OptimalEdges, AreNoneWhereLengthsAreEqual) {
  EXPECT_EQ(edges_of({.lengths = {7}, .counts = {100}}, 10, {.token_budget = 70}), Edges());
  EXPECT_EQ(edges_of({.lengths = {0}, .counts = {20}}, 10, {.token_budget = 8}), Edges());
  EXPECT_EQ(edges_of({.lengths = {kTop}, .counts = {1}}, 10, {.token_budget = 8}), Edges());
}

TEST(OptimalEdges, SeparateTwoLengths) {
  const LengthHistogram histogram = {.lengths = {10, 500}, .counts = {10000, 10000}};
  EXPECT_EQ(edges_of(histogram, 2, {.token_budget = 5000}), Edges({500}));
  EXPECT_EQ(edges_of(histogram, 30, {.token_budget = 5000}), Edges({500}));
  EXPECT_EQ(edges_of(histogram, 1, {.token_budget = 5000}), Edges());
}

TEST(OptimalEdges, KeepLongSamplesFromPartingShortOnes) {
  // 100s are alone wherever they are, but then 10s come together only in a lucky order.
  const FillLimits limits = {.token_budget = 150};
  EXPECT_EQ(edges_of(histogram_of({100, 10, 10, 10, 100}), 6, limits), Edges({100}));
  for (const std::uint64_t times : {1U, 100U, 100000U}) {
    for (const std::uint64_t unit : {1U, 10U, 1000000U}) {
      EXPECT_EQ(edges_of({.lengths = {10 * unit, 100 * unit}, .counts = {300 * times, 200 * times}},
                         6, {.token_budget = 150 * unit}),
                Edges({100 * unit}))
          << times << " " << unit;
    }
  }
}

TEST(OptimalEdges, MakeNoTinyBucket) {
  // One long sample costs a whole batch wherever it is; a few that are little longer than the rest
  // pad less than the half-empty batch of their own would.
  for (const std::uint64_t budget : {10000U, 16384U, 50000U}) {
    for (const auto& [length, count] :
         {std::pair<std::uint64_t, std::uint64_t>{5000, 1}, {130, 3}}) {
      LengthHistogram histogram;
      for (std::uint64_t usual = 90; usual <= 110; ++usual) {
        histogram.lengths.push_back(usual);
        histogram.counts.push_back(10000 / 21);
      }
      histogram.lengths.push_back(length);
      histogram.counts.push_back(count);
      for (const std::uint64_t num_buckets : {2U, 6U}) {
        const Edges edges = edges_of(histogram, num_buckets, {.token_budget = budget});
        ASSERT_FALSE(edges.empty());
        EXPECT_LE(edges.back(), 110U) << budget << " " << length << " " << num_buckets;
      }
    }
  }
}

TEST(OptimalEdges, OfSmallSetsPadLittle) {
  // 12 batches, and 6; as if the last one of each bucket were full, 81 % and 66 % are the most.
  const LengthHistogram histogram = histogram_of(lognormal_lengths(128, 600, 1, 4096));
  const FillLimits narrow = {.token_budget = 16384};
  EXPECT_GE(padding_efficiency(histogram, narrow, edges_of(histogram, 6, narrow)), 0.83);
  const FillLimits wide = {.token_budget = 65536};
  EXPECT_GE(padding_efficiency(histogram, wide, edges_of(histogram, 6, wide)), 0.81);
}

TEST(OptimalEdges, AreFewerThanAskedForOneSampleOfEachLength) {
  EXPECT_LE(edges_of({.lengths = {1, 2}, .counts = {1, 1}}, 30, {.token_budget = 100}).size(), 1U);
}

TEST(OptimalEdges, NeverSeparateEqualWidths) {
  const FillLimits limits = {.token_budget = 4096, .pad_to_multiple_of = 64};
  const LengthHistogram histogram = histogram_of(skewed_lengths(50000, 1000));
  const Edges edges = edges_of(histogram, 100, limits);
  EXPECT_GE(edges.size(), 10U);
  for (const std::uint64_t edge : edges) {
    EXPECT_EQ(edge % 64, 1U);
  }
  // Lengths of 0 cost as 1.
  EXPECT_EQ(edges_of({.lengths = {0, 1}, .counts = {9999, 9999}}, 2, {.token_budget = 8}), Edges());
}

TEST(OptimalEdges, AreNoneWhereNothingIsPadded) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(5000, 1000));
  EXPECT_EQ(edges_of(histogram, 6, {.token_budget = 4096, .max_batch_size = 1}), Edges());
  EXPECT_EQ(edges_of(histogram, 6, {.token_budget = 1}), Edges());
  EXPECT_EQ(edges_of(histogram_of(skewed_lengths(200, 1000)), 6, {.token_budget = 1}), Edges());
}

TEST(OptimalEdges, AreNoneWhereAllSamplesAreOneBatch) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(5000, 1000));
  EXPECT_EQ(edges_of(histogram, 6, {.token_budget = kTop}), Edges());
}

TEST(OptimalEdges, ScaleWithTheLengths) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(50000, 4096));
  LengthHistogram scaled = histogram;
  constexpr std::uint64_t kFactor = std::uint64_t{1} << 40;
  for (std::uint64_t& length : scaled.lengths) {
    length *= kFactor;
  }
  Edges edges = edges_of(histogram, 6, {.token_budget = 16384});
  for (std::uint64_t& edge : edges) {
    edge *= kFactor;
  }
  EXPECT_EQ(edges_of(scaled, 6, {.token_budget = 16384 * kFactor}), edges);
}

TEST(OptimalEdges, OfHugeLengthsDoNotOverflow) {
  LengthHistogram histogram;
  for (std::uint64_t i = 0; i < 300; ++i) {
    histogram.lengths.push_back((i + 1) << 54);
    histogram.counts.push_back(std::uint64_t{1} << (i % 41));
  }
  histogram.lengths.push_back(kTop);
  histogram.counts.push_back(1);
  for (const std::uint64_t budget : {std::uint64_t{1}, std::uint64_t{1} << 60, kTop}) {
    for (const std::uint64_t multiple : {std::uint64_t{1}, std::uint64_t{1} << 62}) {
      const FillLimits limits = {.token_budget = budget, .pad_to_multiple_of = multiple};
      expect_well_formed(edges_of(histogram, 8, limits), histogram, 8, limits);
    }
  }
}

TEST(OptimalEdges, OfLengthsUpToAMillionSeparateThem) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(250000, 1 << 20));
  EXPECT_GE(histogram.lengths.size(), 100000U);
  const FillLimits limits = {.token_budget = 1 << 23, .max_batch_size = 64};
  const Edges edges = edges_of(histogram, 6, limits, 2);
  EXPECT_EQ(edges.size(), 5U);
  expect_well_formed(edges, histogram, 6, limits);
}

TEST(OptimalEdges, TakeAnyNumberOfBuckets) {
  const LengthHistogram histogram = histogram_of(skewed_lengths(600, 4096));
  const FillLimits limits = {.token_budget = 8192};
  for (const std::uint64_t num_buckets : {std::uint64_t{100}, kTop * 2 + 1}) {
    expect_well_formed(edges_of(histogram, num_buckets, limits), histogram, num_buckets, limits);
  }
  constexpr std::uint64_t kWrapsTimesFive = 0x3333333333333334;
  EXPECT_EQ(edges_of(histogram, kWrapsTimesFive, limits), edges_of(histogram, 2000, limits));
}

TEST(OptimalEdges, SayWhichValueIsWrong) {
  expect_error({.lengths = {1}, .counts = {1}}, 0, "`num_buckets` must be at least 1, but is 0.");
  expect_error({}, 1, "`lengths` must have at least 1 sample, but has 0.");
  expect_error({.lengths = {1}, .counts = {1}}, 1,
               "`pad_to_multiple_of` must be in [1, 2**63), but is 0.", {.pad_to_multiple_of = 0});
}

}  // namespace
}  // namespace evenstride
