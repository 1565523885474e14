// The numbers of a pass: each batch once, places without gaps, progress that is exact.
#include "loader/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;
using testing::Values;

Values some_of(Random& random, std::uint64_t num_batches) {
  Values batches;
  const std::uint64_t prefix = random.below(num_batches + 1);
  for (std::uint64_t batch = 0; batch < num_batches; ++batch) {
    if (batch < prefix / 2 || random.one_in(4)) {
      batches.push_back(batch);
    }
  }
  return batches;
}

// What the comments of `BatchNumbers` say of the batches taken, transcribed.
void expect_progress(const BatchNumbers& numbers, const std::set<std::uint64_t>& taken) {
  std::uint64_t first = 0;
  while (taken.contains(first)) {
    ++first;
  }
  ASSERT_EQ(numbers.first(), first);
  ASSERT_EQ(numbers.later(), std::set<std::uint64_t>(taken.lower_bound(first), taken.end()));
  ASSERT_EQ(numbers.num_taken(), taken.size());
}

TEST(Numbers, MatchASetInAnyOrderOfTaking) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t num_batches = random.below(40);
    const Values before = some_of(random, num_batches);
    std::set<std::uint64_t> taken(before.begin(), before.end());
    BatchNumbers numbers(num_batches, before);
    ASSERT_EQ(numbers.num_places(), num_batches - before.size());
    expect_progress(numbers, taken);

    Values claimed;
    std::uint64_t place = 0;
    for (std::uint64_t batch = 0; batch < num_batches; ++batch) {
      if (!taken.contains(batch)) {
        ASSERT_EQ(numbers.next_batch(), batch);
        ASSERT_EQ(numbers.next_place(), place);
        ASSERT_EQ(numbers.claim(), batch);
        ASSERT_EQ(numbers.place_of(batch), place++);
        claimed.push_back(batch);
      }
    }
    ASSERT_EQ(numbers.next_place(), numbers.num_places());

    while (!claimed.empty()) {
      const auto chosen =
          claimed.begin() + static_cast<std::ptrdiff_t>(random.below(claimed.size()));
      numbers.add_taken(*chosen);
      taken.insert(*chosen);
      claimed.erase(chosen);
      expect_progress(numbers, taken);
    }
    ASSERT_EQ(numbers.first(), num_batches);
  }
}

TEST(Numbers, TheOrderOfTheBatchesTakenBeforeIsOfNoMatter) {
  BatchNumbers numbers(6, {4, 0, 2});
  EXPECT_EQ(numbers.first(), 1U);
  EXPECT_EQ(numbers.later(), (std::set<std::uint64_t>{2, 4}));
  EXPECT_EQ((Values{numbers.claim(), numbers.claim(), numbers.claim()}), (Values{1, 3, 5}));
}

TEST(Numbers, SayWhichBatchTakenBeforeIsWrong) {
  EXPECT_EQ(testing::message_of([] { const BatchNumbers numbers(8, {3, 8}); }),
            "`taken` must hold batches in [0, 8), but holds 8.");
  EXPECT_EQ(testing::message_of([] { const BatchNumbers numbers(0, {0}); }),
            "`taken` must hold batches in [0, 0), but holds 0.");
  EXPECT_EQ(testing::message_of([] { const BatchNumbers numbers(8, {5, 3, 5}); }),
            "`taken` must hold each batch once, but holds 5 more than once.");
}

}  // namespace
}  // namespace evenstride
