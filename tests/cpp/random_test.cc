// The random numbers against the published recurrence, and against chance.
#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "samples.h"

namespace evenstride {
namespace {

using testing::Values;

// SplitMix64 as it was published: one state that every call advances.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = state_;
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9;
    z ^= z >> 27;
    z *= 0x94D049BB133111EB;
    z ^= z >> 31;
    return z;
  }

 private:
  std::uint64_t state_;
};

TEST(Random, AStreamIsSplitMix64AtRandomAccess) {
  testing::Random random(1);
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1234567}, random.next()}) {
    SplitMix64 sequential(key);
    Draws draws{Stream(key)};
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t expected = sequential.next();
      ASSERT_EQ(Stream(key)(i), expected) << i;
      ASSERT_EQ(draws.next(), expected) << i;
    }
  }
}

TEST(Random, TheFirstDrawsAreThePublishedOnes) {
  EXPECT_EQ(Stream(0)(0), 0xE220A8397B1DCDAF);
  const Stream stream(1234567);
  const Values published = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                            4593380528125082431U, 16408922859458223821U};
  for (std::size_t i = 0; i < published.size(); ++i) {
    EXPECT_EQ(stream(i), published[i]);
  }
  static_assert(Stream(0)(0) == 0xE220A8397B1DCDAF);
}

TEST(Random, EveryInputBitFlipsEveryOutputBitHalfOfTheTime) {
  constexpr int kTrials = 4000;
  testing::Random random(2);
  std::array<std::array<int, 64>, 64> flips{};
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::uint64_t value = random.next();
    for (unsigned in = 0; in < 64; ++in) {
      const std::uint64_t changed = mix64(value) ^ mix64(value ^ std::uint64_t{1} << in);
      for (unsigned out = 0; out < 64; ++out) {
        flips.at(in).at(out) += static_cast<int>(changed >> out & 1);
      }
    }
  }
  for (const auto& row : flips) {
    for (const int count : row) {
      EXPECT_NEAR(count, kTrials / 2, 200);  // Six standard deviations.
    }
  }
}

TEST(Random, TheHighHalfOfAProductIsThatOfItsFourQuarters) {
  testing::Random random(3);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::uint64_t a = random.next() >> random.below(64);
    const std::uint64_t b = random.next() >> random.below(64);
    const std::uint64_t low = (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
    const std::uint64_t cross = (a >> 32) * (b & 0xFFFFFFFF) + (low >> 32);
    const std::uint64_t other_cross = (a & 0xFFFFFFFF) * (b >> 32) + (cross & 0xFFFFFFFF);
    ASSERT_EQ(multiply_high(a, b), (a >> 32) * (b >> 32) + (cross >> 32) + (other_cross >> 32));
  }
}

TEST(Random, DrawsBelowABoundAreUniform) {
  for (const std::uint64_t bound : {2U, 3U, 7U, 64U, 1000U}) {
    Draws draws(Stream::of(4, bound));
    Values counts(bound);
    for (std::uint64_t i = 0; i < 200 * bound; ++i) {
      ++counts.at(draws.below(bound));
    }
    EXPECT_LT(testing::unevenness(counts), 4) << bound;
  }
}

TEST(Random, DrawsStayBelowEveryBound) {
  testing::Random random(5);
  Draws draws(Stream::of(5, 5));
  for (int trial = 0; trial < 10'000; ++trial) {
    const std::uint64_t bound = std::max<std::uint64_t>(1, random.next() >> random.below(64));
    ASSERT_LT(draws.below(bound), bound);
  }
  for (int trial = 0; trial < 100; ++trial) {
    ASSERT_EQ(draws.below(1), 0U);
  }
}

TEST(Random, EachPermutationOfFourItemsIsAsLikely) {
  constexpr std::uint64_t kTrials = 240'000;
  Values counts(256);
  for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
    std::array<std::uint64_t, 4> items = {0, 1, 2, 3};
    shuffle(std::span<std::uint64_t>(items), Draws(Stream::of(6, trial)));
    ++counts.at(items[0] + 4 * items[1] + 16 * items[2] + 64 * items[3]);
  }
  std::erase(counts, 0U);
  ASSERT_EQ(counts.size(), 24U);
  EXPECT_LT(testing::unevenness(counts), 4);
}

TEST(Random, AShuffleKeepsItsItems) {
  for (std::size_t size = 0; size < 100; ++size) {
    Values items = testing::indices_below(size);
    shuffle(std::span(items), Draws(Stream::of(7, size)));
    EXPECT_EQ(testing::sorted(items), testing::indices_below(size));
  }
}

TEST(Random, SeedAndEpochDoNotCommute) {
  EXPECT_NE(Stream::of(0, 1).key(), Stream::of(1, 0).key());
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
      keys.insert(Stream::of(seed, epoch).key());
    }
  }
  EXPECT_EQ(keys.size(), 40'000U);
}

TEST(Random, StreamsOfNeighbouringNamesShareNothing) {
  std::set<std::uint64_t> draws;
  int ones = 0;
  for (std::uint64_t name = 0; name < 100; ++name) {
    const Stream stream = Stream(8).substream(name);
    for (std::uint64_t i = 0; i < 100; ++i) {
      draws.insert(stream(i));
      ones += std::popcount(stream(i) ^ Stream(8)(i));
    }
  }
  EXPECT_EQ(draws.size(), 10'000U);
  EXPECT_NEAR(ones, 320'000, 2400);  // Six standard deviations.
}

}  // namespace
}  // namespace evenstride
