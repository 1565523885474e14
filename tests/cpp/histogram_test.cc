// `length_histogram` against a map that counts, for every integer type, and its errors.
#include "core/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/random.h"

namespace evenstride {
namespace {

constexpr std::uint64_t kTop = std::numeric_limits<std::int64_t>::max();

template <class Length>
LengthHistogram histogram(const std::vector<Length>& lengths, int num_threads = 1) {
  Team team(num_threads);
  return length_histogram(std::span<const Length>(lengths), team);
}

template <class Length>
LengthHistogram histogram_by_definition(const std::vector<Length>& lengths) {
  std::map<std::uint64_t, std::uint64_t> counts;
  for (const Length length : lengths) {
    ++counts[static_cast<std::uint64_t>(length)];
  }
  LengthHistogram result;
  for (const auto& [length, count] : counts) {
    result.lengths.push_back(length);
    result.counts.push_back(count);
  }
  return result;
}

template <class Length>
std::vector<Length> random_lengths(std::size_t size, std::uint64_t end) {
  Draws draws(Stream::of(size, end));
  std::vector<Length> lengths(size);
  std::generate(lengths.begin(), lengths.end(),
                [&] { return static_cast<Length>(draws.below(end)); });
  return lengths;
}

template <class Length>
void expect_error(const std::vector<Length>& lengths, const std::string& sentence) {
  for (int num_threads = 1; num_threads <= 4; ++num_threads) {
    try {
      static_cast<void>(histogram(lengths, num_threads));
      ADD_FAILURE() << "nothing thrown";
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), sentence);
    }
  }
}

template <class Length>
class HistogramOf : public ::testing::Test {};

using AllTypes = ::testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t,
                                  std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(HistogramOf, AllTypes);

TYPED_TEST(HistogramOf, MatchesItsDefinition) {
  constexpr auto kEnd =
      std::min(kTop, static_cast<std::uint64_t>(std::numeric_limits<TypeParam>::max()));
  for (const std::size_t size : {1U, 2U, 3U, 4U, 5U, 127U, 40000U}) {
    for (const std::uint64_t end : {std::uint64_t{1}, std::uint64_t{100}, kEnd}) {
      const auto lengths = random_lengths<TypeParam>(size, end);
      EXPECT_EQ(histogram(lengths), histogram_by_definition(lengths));
    }
  }
}

TYPED_TEST(HistogramOf, CountsTheLargestLengthOfItsType) {
  const auto top =
      static_cast<TypeParam>(std::min<std::uint64_t>(kTop, std::numeric_limits<TypeParam>::max()));
  const std::vector<TypeParam> lengths = {top, 0, top, 1};
  EXPECT_EQ(histogram(lengths), histogram_by_definition(lengths));
}

TYPED_TEST(HistogramOf, NamesTheFirstNegativeLength) {
  if constexpr (std::numeric_limits<TypeParam>::is_signed) {
    std::vector<TypeParam> lengths(100000, 7);
    lengths[99999] = -1;
    lengths[60000] = std::numeric_limits<TypeParam>::min();
    lengths[12] = -3;
    expect_error(lengths, "`lengths[12]` must be in [0, 2**63), but is -3.");
  }
}

TEST(Histogram, OfNoSamplesIsEmpty) {
  EXPECT_EQ(histogram(std::vector<std::int64_t>{}), LengthHistogram{});
  EXPECT_EQ(num_samples(LengthHistogram{}), 0U);
}

TEST(Histogram, NamesTheFirstLengthAboveInt64) {
  std::vector<std::uint64_t> lengths(100000, kTop);
  lengths[70000] = kTop + 2;
  lengths[50001] = kTop + 1;
  expect_error(lengths, "`lengths[50001]` must be in [0, 2**63), but is 9223372036854775808.");
}

TEST(Histogram, IsTheSameForEveryNumberOfThreads) {
  for (const std::uint64_t end : {std::uint64_t{1}, std::uint64_t{8192}, std::uint64_t{1} << 18,
                                  std::uint64_t{1} << 24, kTop}) {
    const auto lengths = random_lengths<std::int64_t>(300001, end);
    const LengthHistogram expected = histogram_by_definition(lengths);
    for (int num_threads = 1; num_threads <= 5; ++num_threads) {
      EXPECT_EQ(histogram(lengths, num_threads), expected) << end << " " << num_threads;
    }
  }
}

TEST(Histogram, CountsShortLengthsAmongHugeOnes) {
  auto lengths = random_lengths<std::uint64_t>(200000, 4000);
  for (std::size_t i = 0; i < lengths.size(); i += 997) {
    lengths[i] = kTop - i % 3;
  }
  EXPECT_EQ(histogram(lengths, 3), histogram_by_definition(lengths));
}

TEST(Histogram, CountsSortedAndTwoValuedLengths) {
  auto lengths = random_lengths<std::uint16_t>(123457, 8192);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_EQ(histogram(lengths, 2), histogram_by_definition(lengths));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = i % 2 == 0 ? 1 : 8192;
  }
  EXPECT_EQ(histogram(lengths, 2), histogram_by_definition(lengths));
}

TEST(Histogram, CountsEverySample) {
  EXPECT_EQ(num_samples(histogram(random_lengths<std::int32_t>(99991, 1 << 20), 2)), 99991U);
}

}  // namespace
}  // namespace evenstride
