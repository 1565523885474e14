// Sorting by length against std::stable_sort.
#include "core/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/entries.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::entries_of;
using testing::Random;
using testing::Values;

using Pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // Length and index.

template <class Entry>
Pairs pairs_of(const std::vector<Entry>& entries) {
  Pairs pairs;
  for (const Entry& entry : entries) {
    pairs.emplace_back(entry.length(), entry.index());
  }
  return pairs;
}

template <class Entry>
void expect_sorted(const Values& lengths, std::size_t spare = 0) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    std::vector<Entry> entries = entries_of<Entry>(lengths);
    Pairs expected = pairs_of(entries);
    std::stable_sort(expected.begin(), expected.end(), [&](const auto& a, const auto& b) {
      return direction == Direction::kUp ? a.first < b.first : a.first > b.first;
    });
    std::vector<Entry> scratch(entries.size() + spare);
    sort_by_length(std::span(entries), std::span(scratch), direction);
    ASSERT_EQ(pairs_of(entries), expected);
  }
}

template <class Entry>
class Sort : public ::testing::Test {};

struct Names {
  template <class Entry>
  static std::string GetName(int) {
    return sizeof(Entry) == 8 ? "Packed" : "Wide";
  }
};

using Entries = ::testing::Types<PackedEntry, WideEntry>;
TYPED_TEST_SUITE(Sort, Entries, Names);

TYPED_TEST(Sort, EqualLengthsKeepTheirOrderUpAndDown) {
  Random random(1);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::uint64_t range = std::uint64_t{1} << random.below(32);
    const std::uint64_t shortest = random.below((std::uint64_t{1} << 32) - range + 1);
    Values lengths(random.below(300));
    std::ranges::generate(lengths, [&] { return shortest + random.below(range); });
    expect_sorted<TypeParam>(lengths, random.below(3));
  }
}

TYPED_TEST(Sort, LengthsThatAreAllEqualStay) {
  for (std::size_t size = 0; size < 5; ++size) {
    expect_sorted<TypeParam>(Values(size, 0));
    expect_sorted<TypeParam>(Values(size, 0xFFFFFFFF));
  }
}

// One counter more than there are digits, at every width of a digit.
TYPED_TEST(Sort, EveryNumberOfBitsIsSorted) {
  for (unsigned bits = 0; bits <= 32; ++bits) {
    const std::uint64_t longest = (std::uint64_t{1} << bits) - 1;
    expect_sorted<TypeParam>({longest, 0, longest / 2, longest, longest / 3, 0, longest / 2 + 1});
  }
}

TEST(SortOfWideEntries, TheWholeRangeIsSorted) {
  Random random(2);
  for (int trial = 0; trial < 500; ++trial) {
    Values lengths(random.below(100));
    std::ranges::generate(lengths, [&] { return random.next() >> random.between(1, 63); });
    lengths.push_back(0);
    lengths.push_back((std::uint64_t{1} << 63) - 1);
    expect_sorted<WideEntry>(lengths);
  }
}

TEST(Entries, KeepLengthAndIndex) {
  for (const std::uint64_t length : {0U, 1U, 0xFFFFFFFFU}) {
    for (const std::uint64_t index : {0U, 1U, 0xFFFFFFFFU}) {
      const PackedEntry entry(length, index);
      EXPECT_EQ(entry.length(), length);
      EXPECT_EQ(entry.index(), index);
    }
  }
  const WideEntry entry(std::uint64_t{1} << 62, std::uint64_t{1} << 61);
  EXPECT_EQ(entry.length(), std::uint64_t{1} << 62);
  EXPECT_EQ(entry.index(), std::uint64_t{1} << 61);
}

}  // namespace
}  // namespace evenstride
