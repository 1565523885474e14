// The fingerprint of lengths: what changes it, what does not, and what it was in the first version.
#include "core/fingerprint.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/random.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Values;

template <class T>
std::uint64_t fingerprint_as(const Values& lengths, int num_threads = 1) {
  const std::vector<T> values(lengths.begin(), lengths.end());
  Team team(num_threads);
  return fingerprint(std::span<const T>(values), team);
}

std::uint64_t fingerprint_of(const Values& lengths) {
  return fingerprint_as<std::uint64_t>(lengths);
}

TEST(Fingerprint, IsTheSameForEveryTypeAndNumberOfThreads) {
  testing::Random random(1);
  for (const std::size_t size : {0U, 1U, 255U, 256U, 257U, 3000U}) {
    const Values lengths = testing::random_lengths(random, size, 127);
    std::set<std::uint64_t> fingerprints;
    for (int num_threads = 1; num_threads <= 8; ++num_threads) {
      fingerprints.insert({fingerprint_as<std::uint8_t>(lengths, num_threads),
                           fingerprint_as<std::uint16_t>(lengths, num_threads),
                           fingerprint_as<std::uint32_t>(lengths, num_threads),
                           fingerprint_as<std::uint64_t>(lengths, num_threads),
                           fingerprint_as<std::int8_t>(lengths, num_threads),
                           fingerprint_as<std::int16_t>(lengths, num_threads),
                           fingerprint_as<std::int32_t>(lengths, num_threads),
                           fingerprint_as<std::int64_t>(lengths, num_threads)});
    }
    EXPECT_EQ(fingerprints.size(), 1U) << size;
  }
}

TEST(Fingerprint, AnyOneChangedLengthChangesIt) {
  testing::Random random(2);
  Values lengths = testing::random_lengths(random, 300, 1000);
  std::set<std::uint64_t> fingerprints = {fingerprint_of(lengths)};
  for (std::uint64_t& length : lengths) {
    for (const std::uint64_t other : {length + 1, length ^ 64, length + (std::uint64_t{1} << 40)}) {
      const std::uint64_t own = std::exchange(length, other);
      fingerprints.insert(fingerprint_of(lengths));
      length = own;
    }
  }
  EXPECT_EQ(fingerprints.size(), 901U);
}

TEST(Fingerprint, TwoLengthsThatTradePlacesChangeIt) {
  Values lengths = testing::indices_below(40);
  std::set<std::uint64_t> fingerprints = {fingerprint_of(lengths)};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      std::swap(lengths[i], lengths[j]);
      fingerprints.insert(fingerprint_of(lengths));
      std::swap(lengths[i], lengths[j]);
    }
  }
  EXPECT_EQ(fingerprints.size(), 781U);
}

// A sum alone would not see a length that grows by the difference of two terms' constants.
TEST(Fingerprint, ASampleMoreChangesItWhateverItsLength) {
  std::set<std::uint64_t> fingerprints;
  for (std::size_t size = 0; size < 500; ++size) {
    fingerprints.insert(fingerprint_of(Values(size, 0)));
  }
  EXPECT_EQ(fingerprints.size(), 500U);
}

// States that were saved hold such numbers: one that changes here makes them all unreadable.
TEST(Fingerprint, IsWhatItWas) {
  EXPECT_EQ(fingerprint_of({}), mix64(0));
  EXPECT_EQ(fingerprint_of({7}), mix64(mix64(7 + kGoldenGamma) + 1));
  EXPECT_EQ(fingerprint_of(testing::indices_below(1000)), 3884448908977168158U);
}

}  // namespace
}  // namespace evenstride
