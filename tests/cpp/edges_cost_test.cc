// The cost of a bucket against the padded tokens and the batches of the real fill.
#include "core/edges_cost.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "fill_simulation.h"

namespace evenstride {
namespace {

using testing::histogram_of;
using testing::lognormal_lengths;
using testing::Sample;

constexpr std::uint64_t kTop = std::numeric_limits<std::int64_t>::max();

// The cost in padded tokens: costs have a unit of their own.
double cost_in_tokens(const BucketCosts& costs, const WidthHistogram& widths, std::size_t first,
                      std::size_t last) {
  double tokens = 0;
  for (std::size_t i = 0; i < widths.widths.size(); ++i) {
    tokens += static_cast<double>(widths.widths[i]) *
              static_cast<double>(widths.samples_below[i + 1] - widths.samples_below[i]);
  }
  return static_cast<double>(costs(first, last)) * tokens /
         static_cast<double>(costs.without_padding(0, widths.widths.size()));
}

// The mean padded tokens of the lengths in [begin, end), shuffled and filled `num_fills` times,
// with an overhead for each batch.
double filled_cost(const LengthHistogram& histogram, const FillLimits& limits, std::uint64_t begin,
                   std::uint64_t end, double batch_overhead, std::uint64_t num_fills) {
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < histogram.lengths.size(); ++i) {
    if (histogram.lengths[i] >= begin && histogram.lengths[i] < end) {
      samples.insert(samples.end(), histogram.counts[i], Sample{histogram.lengths[i]});
    }
  }
  const LengthBounds bounds(limits, samples.size());
  double cost = 0;
  for (std::uint64_t seed = 0; seed < num_fills; ++seed) {
    shuffle(std::span(samples), Draws(Stream::of(seed, begin)));
    fill_all(std::span<const Sample>(samples), bounds, [&](const Cut& cut) {
      cost += static_cast<double>(cut.end - cut.begin) *
                  static_cast<double>(width_of(cut.longest, limits.pad_to_multiple_of)) +
              batch_overhead;
    });
  }
  return cost / static_cast<double>(num_fills);
}

TEST(WidthHistogram, JoinsLengthsOfEqualWidth) {
  const LengthHistogram histogram = {.lengths = {0, 1, 2, 8, 9, 17}, .counts = {1, 2, 3, 4, 5, 6}};
  const WidthHistogram exact = width_histogram(histogram, 1);
  EXPECT_EQ(exact.widths, std::vector<std::uint64_t>({1, 2, 8, 9, 17}));
  EXPECT_EQ(exact.samples_below, std::vector<std::uint64_t>({0, 3, 6, 10, 15, 21}));
  const WidthHistogram padded = width_histogram(histogram, 8);
  EXPECT_EQ(padded.widths, std::vector<std::uint64_t>({8, 16, 24}));
  EXPECT_EQ(padded.samples_below, std::vector<std::uint64_t>({0, 10, 15, 21}));
}

TEST(BucketCosts, CountBatchesAndHalfOfWhatTheLastMayLack) {
  const WidthHistogram widths =
      width_histogram(histogram_of(std::vector<std::uint64_t>(1000, 7)), 1);
  const BucketCosts costs(widths, {.token_budget = 75}, 64);  // Batches of 10.
  EXPECT_NEAR(cost_in_tokens(costs, widths, 0, 1), 7000 + 100 + 71 * 9 / 20.0, 1e-6);
  // An overhead is a 128th of the largest batch, whatever limits it.
  for (const FillLimits& limits :
       {FillLimits{.token_budget = 3500}, {.token_budget = kTop, .max_batch_size = 500}}) {
    EXPECT_NEAR(cost_in_tokens(BucketCosts(widths, limits, 1024), widths, 0, 1),
                7000 + 2 * 27 + 3527 * 499 / 1000.0, 1e-6);
  }
}

TEST(BucketCosts, OfATinyBucketAreAWholeBatch) {
  const WidthHistogram widths = width_histogram({.lengths = {7, 900}, .counts = {3, 1000}}, 1);
  const BucketCosts within_the_draws(widths, {.token_budget = 75}, 64);
  EXPECT_NEAR(cost_in_tokens(within_the_draws, widths, 0, 1), 70 + 1, 1e-6);
  const BucketCosts beyond_the_draws(widths, {.token_budget = 75000}, 64);
  EXPECT_NEAR(cost_in_tokens(beyond_the_draws, widths, 0, 1), 74998 + 585, 1e-6);
  const BucketCosts cut(widths, {.token_budget = 75000, .batch_size_multiple = 1000}, 64);
  EXPECT_NEAR(cost_in_tokens(cut, widths, 0, 1), 70000 + 585, 1e-6);
}

TEST(BucketCosts, OfFewSamplesCountTheLastBatchAsItIs) {
  const WidthHistogram widths = width_histogram(histogram_of({100, 10, 10, 10, 100}), 1);
  const BucketCosts costs(widths, {.token_budget = 150}, 64);
  EXPECT_NEAR(cost_in_tokens(costs, widths, 0, 1), 30 + 1, 1e-6);
  EXPECT_NEAR(cost_in_tokens(costs, widths, 1, 2), 200 + 2, 1e-6);
  // Two batches of one sample, and as many as there are runs of others: 3 * 3 / 5 on average.
  EXPECT_NEAR(cost_in_tokens(costs, widths, 0, 2), 230 + 2 + 1.8, 0.1);
}

TEST(BucketCosts, OfFewSamplesAreTheMeanOfTheRealFill) {
  for (const std::size_t num_samples :
       {std::size_t{20}, std::size_t{100}, std::size_t{BucketCosts::kFewSamples}}) {
    const LengthHistogram histogram = histogram_of(lognormal_lengths(num_samples, 600, 1, 8192));
    for (const FillLimits& limits : {FillLimits{.token_budget = 12800},
                                     {.token_budget = 12800, .batch_size_multiple = 4},
                                     {.token_budget = 12800, .pad_to_multiple_of = 64}}) {
      const WidthHistogram widths = width_histogram(histogram, limits.pad_to_multiple_of);
      const BucketCosts costs(widths, limits, 512);
      const std::size_t all = widths.widths.size();
      for (const auto& [first, last] : {std::pair<std::size_t, std::size_t>{0, all},
                                        {0, all / 2},
                                        {all / 4, all / 2},
                                        {all - 1, all}}) {
        const std::uint64_t begin = first == 0 ? 0 : widths.widths[first - 1] + 1;
        const double filled =
            filled_cost(histogram, limits, begin, widths.widths[last - 1] + 1, 100, 1000);
        EXPECT_NEAR(cost_in_tokens(costs, widths, first, last) / filled, 1, 0.06)
            << num_samples << " " << limits.batch_size_multiple << " " << first << " " << last;
      }
    }
  }
}

TEST(BucketCosts, OfBatchesOfOneSampleAreExact) {
  const LengthHistogram histogram = histogram_of(lognormal_lengths(100000, 600, 1, 8192));
  const WidthHistogram widths = width_histogram(histogram, 1);
  const BucketCosts costs(widths, {.token_budget = 16384, .max_batch_size = 1}, 512);
  const std::size_t all = widths.widths.size();
  for (std::size_t cut = 1; cut < all; cut += 99) {
    EXPECT_EQ(costs(0, cut) + costs(cut, all), costs(0, all));
  }
}

TEST(BucketCosts, OfSamplesWiderThanTheBudgetAreBatchesOfOne) {
  const WidthHistogram widths =
      width_histogram(histogram_of(std::vector<std::uint64_t>(99, 50)), 1);
  const BucketCosts costs(widths, {.token_budget = 10}, 64);
  EXPECT_NEAR(cost_in_tokens(costs, widths, 0, 1), 99 * 50 + 99, 1e-6);
}

TEST(BucketCosts, AreThoseOfTheRealFill) {
  const LengthHistogram histogram = histogram_of(lognormal_lengths(100000, 600, 1, 8192));
  for (const FillLimits& limits :
       {FillLimits{.token_budget = 16384}, FillLimits{.token_budget = 65536, .max_batch_size = 24},
        FillLimits{.token_budget = 32768, .batch_size_multiple = 8},
        FillLimits{.token_budget = 32768,
                   .max_batch_size = 48,
                   .batch_size_multiple = 4,
                   .pad_to_multiple_of = 64}}) {
    const WidthHistogram widths = width_histogram(histogram, limits.pad_to_multiple_of);
    const BucketCosts costs(widths, limits, 4096);
    const std::size_t all = widths.widths.size();
    for (const auto& [first, last] : {std::pair<std::size_t, std::size_t>{0, all},
                                      {0, all / 8},
                                      {all / 10, all / 5},
                                      {all / 2, all}}) {
      const std::uint64_t begin = first == 0 ? 0 : widths.widths[first - 1] + 1;
      const auto overhead = static_cast<double>(limits.token_budget / 128);
      const double filled =
          filled_cost(histogram, limits, begin, widths.widths[last - 1] + 1, overhead, 1);
      EXPECT_NEAR(cost_in_tokens(costs, widths, first, last) / filled, 1, 0.025)
          << limits.token_budget << " " << limits.batch_size_multiple << " " << first;
    }
  }
}

TEST(BucketCosts, OfANarrowBucketAmongBillionsSeeItsOwnLengths) {
  LengthHistogram histogram = {.lengths = {10}, .counts = {std::uint64_t{1} << 40}};
  for (std::uint64_t length = 1001; length <= 2000; ++length) {
    histogram.lengths.push_back(length);
    histogram.counts.push_back(1000);
  }
  const WidthHistogram widths = width_histogram(histogram, 1);
  const BucketCosts costs(widths, {.token_budget = kTop, .max_batch_size = 2}, 512);
  const double tokens = (2 * 1667.0 + 31) / 2 * 1000 * 1000;  // The longer of two, on average.
  EXPECT_NEAR(cost_in_tokens(costs, widths, 1, 1001) / tokens, 1, 0.01);
}

TEST(BucketCosts, OfHugeLengthsDoNotOverflow) {
  const LengthHistogram histogram = {.lengths = {1, kTop - 1, kTop},
                                     .counts = {1, std::uint64_t{1} << 40, 1}};
  const WidthHistogram widths = width_histogram(histogram, 1);
  const BucketCosts costs(widths, {.token_budget = kTop}, 512);
  EXPECT_GE(costs(1, 2), costs.without_padding(1, 2));
  EXPECT_GE(costs(0, 3), costs(1, 2));
  EXPECT_LT(costs(0, 1) + costs(1, 2) + costs(2, 3), std::uint64_t{1} << 63);
  EXPECT_NEAR(static_cast<double>(costs(1, 2)) / static_cast<double>(costs.without_padding(1, 2)),
              1 + 1 / 128.0, 1e-6);
}

}  // namespace
}  // namespace evenstride
