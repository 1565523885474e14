// Greedy filling against its own definition.
#include "core/fill.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;
using testing::Values;

constexpr std::uint64_t kTop = (std::uint64_t{1} << 63) - 1;

struct Sample {
  std::uint64_t tokens;

  [[nodiscard]] std::uint64_t length() const { return tokens; }
};

struct Filled {
  Values ends;
  Values longest;
  std::uint64_t open = 0;

  friend bool operator==(const Filled&, const Filled&) = default;
};

Filled fill_lengths(const Values& lengths, const FillLimits& limits, bool close_last) {
  std::vector<Sample> samples;
  for (const std::uint64_t length : lengths) {
    samples.push_back({length});
  }
  Filled filled;
  const auto emit = [&](const Cut& cut) {
    EXPECT_EQ(cut.begin, filled.ends.empty() ? 0 : filled.ends.back());
    filled.ends.push_back(cut.end);
    filled.longest.push_back(cut.longest);
  };
  const LengthBounds bounds(limits, samples.size());
  if (close_last) {
    fill_all(std::span<const Sample>(samples), bounds, emit);
    filled.open = samples.size();
  } else {
    filled.open = fill(std::span<const Sample>(samples), bounds, emit);
  }
  return filled;
}

// The comment of `fill`, transcribed.
Filled fill_by_definition(const Values& lengths, const FillLimits& limits, bool close_last) {
  const auto longest_in = [&](std::size_t begin, std::size_t end) {
    std::uint64_t longest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      longest = std::max(longest, lengths[i]);
    }
    return longest;
  };
  Filled filled;
  while (filled.open < lengths.size()) {
    const std::size_t begin = filled.open;
    std::size_t end = begin + 1;
    while (end < lengths.size() &&
           testing::is_allowed(end + 1 - begin, longest_in(begin, end + 1), limits)) {
      ++end;
    }
    if (end == lengths.size() && !close_last) {
      break;
    }
    if (end - begin > limits.batch_size_multiple) {
      end -= (end - begin) % limits.batch_size_multiple;
    }
    filled.ends.push_back(end);
    filled.longest.push_back(longest_in(begin, end));
    filled.open = end;
  }
  return filled;
}

TEST(Fill, MatchesItsDefinition) {
  Random random(1);
  for (int trial = 0; trial < 5000; ++trial) {
    const std::uint64_t longest = random.between(1, 40);
    const FillLimits limits = testing::random_limits(random, longest);
    const Values lengths = testing::random_lengths(random, random.below(60), longest);
    for (const bool close_last : {false, true}) {
      ASSERT_EQ(fill_lengths(lengths, limits, close_last),
                fill_by_definition(lengths, limits, close_last))
          << "trial " << trial;
    }
  }
}

TEST(Fill, MatchesItsDefinitionWhereSamplesAreTooLongForTheBudget) {
  Random random(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const FillLimits limits = testing::random_limits(random, 10);
    const Values lengths = testing::random_lengths(random, random.below(40), 200);
    ASSERT_EQ(fill_lengths(lengths, limits, true), fill_by_definition(lengths, limits, true));
  }
}

TEST(Fill, MatchesItsDefinitionNearTheTopOf64Bits) {
  Random random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const FillLimits limits = {.token_budget = kTop - random.below(3),
                               .pad_to_multiple_of = std::uint64_t{1} << random.below(63)};
    Values lengths(random.below(12));
    for (std::uint64_t& length : lengths) {
      length = (kTop >> random.below(5)) - random.below(3);
    }
    ASSERT_EQ(fill_lengths(lengths, limits, true), fill_by_definition(lengths, limits, true));
  }
}

TEST(Fill, ABudgetAtTheTopOfInt64DoesNotOverflow) {
  const FillLimits limits = {.token_budget = kTop};
  const std::uint64_t half = std::uint64_t{1} << 62;
  EXPECT_EQ(fill_lengths({kTop, kTop, 1}, limits, true).ends, (Values{1, 2, 3}));
  EXPECT_EQ(fill_lengths({half, half, half - 1, half - 1}, limits, true).ends, (Values{1, 2, 4}));
  EXPECT_EQ(fill_lengths({half, 0, 0, 0}, limits, true).ends, (Values{1, 4}));
}

TEST(Fill, LengthsOfZeroCostAsOne) {
  EXPECT_EQ(fill_lengths(Values(10, 0), {.token_budget = 4}, true).ends, (Values{4, 8, 10}));
}

TEST(Fill, PaddedWidthsCount) {
  const FillLimits limits = {.token_budget = 16, .pad_to_multiple_of = 8};
  EXPECT_EQ(fill_lengths({1, 8, 9, 1, 0, 0}, limits, true).ends, (Values{2, 3, 5, 6}));
}

TEST(Fill, AClosingBatchIsCutToTheMultipleAndTheRestOpensTheNext) {
  const FillLimits limits = {.token_budget = 70, .batch_size_multiple = 4};
  EXPECT_EQ(fill_lengths(Values(17, 10), limits, false).ends, (Values{4, 8, 12}));
  EXPECT_EQ(fill_lengths(Values(17, 10), limits, true).ends, (Values{4, 8, 12, 16, 17}));
}

TEST(Fill, AWidthThatAdmitsFewerThanTheMultipleMakesSmallerBatches) {
  const FillLimits limits = {.token_budget = 30, .batch_size_multiple = 4};
  EXPECT_EQ(fill_lengths(Values(7, 10), limits, true).ends, (Values{3, 6, 7}));
}

// The table of bounds ends at 4,096 samples.
TEST(Fill, ABatchMayHaveMoreSamplesThanTheTableHasBounds) {
  for (const std::uint64_t budget : {4094U, 4095U, 4096U, 4097U, 9000U}) {
    EXPECT_EQ(fill_lengths(Values(budget + 5, 1), {.token_budget = budget}, true).ends,
              (Values{budget, budget + 5}));
    EXPECT_EQ(fill_lengths(Values(5000, 1), {.token_budget = 2 * budget}, true).ends,
              2 * budget < 5000 ? Values{} : Values{5000});
  }
  const FillLimits limits = {.token_budget = kTop, .max_batch_size = 6000};
  EXPECT_EQ(fill_lengths(Values(13'000, 3), limits, true).ends, (Values{6000, 12'000, 13'000}));
}

TEST(Fill, BoundsAreTheLeastLengthsThatAreNotAllowed) {
  Random random(4);
  for (int trial = 0; trial < 100; ++trial) {
    FillLimits limits = testing::random_limits(random, random.between(1, 100'000));
    limits.max_batch_size = random.one_in(2) ? random.between(1, 9000) : kUnlimited;
    const LengthBounds bounds(limits, random.below(10'000));
    EXPECT_EQ(bounds(1), kUnlimited);
    for (std::uint64_t samples = 2; samples < 9100; samples += 1 + samples / 20) {
      const std::uint64_t bound = bounds(samples);
      ASSERT_FALSE(testing::is_allowed(samples, bound, limits)) << samples;
      ASSERT_TRUE(bound == 0 || testing::is_allowed(samples, bound - 1, limits)) << samples;
    }
  }
}

TEST(Fill, TheCapacityIsTheMostSamplesThatAreAllowed) {
  Random random(5);
  for (int trial = 0; trial < 3000; ++trial) {
    const std::uint64_t longest = random.next() >> random.between(1, 60);
    FillLimits limits = testing::random_limits(random, 1000);
    limits.token_budget = std::max<std::uint64_t>(1, random.next() >> random.between(1, 60));
    const std::uint64_t capacity = capacity_of(longest, limits);
    ASSERT_GE(capacity, 1U);
    ASSERT_TRUE(testing::is_allowed(capacity, longest, limits)) << trial;
    ASSERT_FALSE(testing::is_allowed(capacity + 1, longest, limits)) << trial;
  }
}

TEST(Fill, AWidthIsTheLongestLengthRoundedUp) {
  for (std::uint64_t longest = 0; longest < 100; ++longest) {
    for (std::uint64_t multiple = 1; multiple < 20; ++multiple) {
      std::uint64_t width = 1;
      while (width < longest || width % multiple != 0) {
        ++width;
      }
      ASSERT_EQ(width_of(longest, multiple), width);
    }
  }
  EXPECT_EQ(width_of(kTop, kTop), kTop);
  EXPECT_EQ(width_of(kTop, std::uint64_t{1} << 62), std::uint64_t{1} << 63);
}

}  // namespace
}  // namespace evenstride
