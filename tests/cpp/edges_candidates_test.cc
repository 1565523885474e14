// Where `candidate_cuts` lets an edge lie.
#include "core/edges_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace evenstride {
namespace {

using Cuts = std::vector<std::size_t>;

// Widths 1, 2, ..., each with that many samples.
WidthHistogram widths_with(const std::vector<std::uint64_t>& samples) {
  WidthHistogram histogram{.widths = {}, .samples_below = {0}};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    histogram.widths.push_back(i + 1);
    histogram.samples_below.push_back(histogram.samples_below.back() + samples[i]);
  }
  return histogram;
}

bool has(const Cuts& cuts, std::size_t cut) {
  return std::find(cuts.begin(), cuts.end(), cut) != cuts.end();
}

TEST(CandidateCuts, AreAllCutsWhereWidthsAreFew) {
  EXPECT_EQ(candidate_cuts(widths_with({5}), 4), Cuts({0, 1}));
  EXPECT_EQ(candidate_cuts(widths_with({5, 1, 1, 9}), 4), Cuts({0, 1, 2, 3, 4}));
}

TEST(CandidateCuts, IncreaseFromTheFirstToTheLast) {
  for (const std::size_t num_cuts : {4U, 5U, 16U, 160U, 999U}) {
    const Cuts cuts = candidate_cuts(widths_with(std::vector<std::uint64_t>(1000, 3)), num_cuts);
    EXPECT_EQ(cuts.front(), 0U);
    EXPECT_EQ(cuts.back(), 1000U);
    EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<>()));
    EXPECT_LE(cuts.size(), num_cuts + 2);
    EXPECT_GE(cuts.size(), num_cuts * 2 / 3);
  }
}

TEST(CandidateCuts, AreHalfBySamplesAndHalfByTokens) {
  // 900 short samples, 100 that are ten times as long and longer.
  std::vector<std::uint64_t> samples(1000, 1);
  std::fill(samples.begin() + 90, samples.begin() + 900, 0);
  std::fill(samples.begin(), samples.begin() + 90, 10);
  const Cuts cuts = candidate_cuts(widths_with(samples), 40);
  const auto among_the_short = static_cast<std::size_t>(
      std::count_if(cuts.begin(), cuts.end(), [](std::size_t cut) { return cut <= 90; }));
  EXPECT_GE(among_the_short, 18U);                // 18 of 20 by samples.
  EXPECT_GE(cuts.size() - among_the_short, 12U);  // Nearly 14 of 20 by tokens.
}

TEST(CandidateCuts, LieOnBothSidesOfEveryHeavyWidth) {
  std::vector<std::uint64_t> samples(1000, 1);
  for (const std::size_t heavy : {10U, 500U, 501U, 998U}) {
    samples[heavy] = 5000;
  }
  const Cuts cuts = candidate_cuts(widths_with(samples), 40);
  for (const std::size_t cut : {10U, 11U, 500U, 501U, 502U, 998U, 999U}) {
    EXPECT_TRUE(has(cuts, cut)) << cut;
  }
}

TEST(CandidateCuts, AreNotUsedUpByAHeavyWidth) {
  std::vector<std::uint64_t> samples(1000, 1);
  samples[999] = 9000;
  EXPECT_GE(candidate_cuts(widths_with(samples), 160).size(), 125U);
}

TEST(CandidateCuts, OfHugeWidthsDoNotOverflow) {
  WidthHistogram histogram = widths_with(std::vector<std::uint64_t>(1000, std::uint64_t{1} << 50));
  for (std::uint64_t& width : histogram.widths) {
    width += (std::uint64_t{1} << 63) - 1001;
  }
  const Cuts cuts = candidate_cuts(histogram, 160);
  EXPECT_GE(cuts.size(), 75U);
  EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<>()));
}

}  // namespace
}  // namespace evenstride
