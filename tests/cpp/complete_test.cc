// Filling a bucket into exactly as many batches as are wanted, for all that can be wanted.
#include "core/complete.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/sort.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Batches;
using testing::entries_of;
using testing::Random;
using testing::Values;

template <class Entry>
FilledBucket<Entry> filled(const Values& lengths, const FillLimits& limits) {
  const std::vector<Entry> entries = entries_of<Entry>(lengths);
  std::vector<Cut> cuts;
  fill_all(std::span<const Entry>(entries), LengthBounds(limits, entries.size()),
           [&](const Cut& cut) { cuts.push_back(cut); });
  FilledBucket<Entry> bucket;
  bucket.append(entries, cuts);
  bucket.samples = entries.size();
  return bucket;
}

std::uint64_t fewest(Values lengths, FillLimits limits) {
  limits.batch_size_multiple = 1;
  std::ranges::sort(lengths);
  return filled<WideEntry>(lengths, limits).batches.size();
}

template <class Entry>
::testing::AssertionResult is_right(const FilledBucket<Entry>& bucket, std::uint64_t wanted,
                                    const Values& lengths, const FillLimits& limits) {
  const Batches batches = testing::indices_of(bucket.batches);
  if (batches.size() != wanted) {
    return ::testing::AssertionFailure() << batches.size() << " batches instead of " << wanted;
  }
  if (testing::sorted(testing::joined(batches)) != testing::indices_below(lengths.size())) {
    return ::testing::AssertionFailure() << "samples were lost or repeated";
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (bucket.batches[i].longest != testing::longest_of(batches[i], lengths)) {
      return ::testing::AssertionFailure() << "wrong longest sample of batch " << i;
    }
  }
  return testing::keep_limits(batches, lengths, limits);
}

template <class Entry>
void expect_every_number(std::uint64_t seed) {
  Random random(seed);
  for (int trial = 0; trial < 150; ++trial) {
    const std::uint64_t longest = random.between(1, 50);
    const Values lengths = testing::random_lengths(random, random.between(1, 80), longest);
    const FillLimits limits = testing::random_limits(random, longest);
    const std::uint64_t tail = random.between(1, 20);
    for (std::uint64_t wanted = fewest(lengths, limits); wanted <= lengths.size(); ++wanted) {
      FilledBucket<Entry> bucket = filled<Entry>(lengths, limits);
      complete(bucket, wanted, tail, testing::view(lengths), limits);
      ASSERT_TRUE(is_right(bucket, wanted, lengths, limits))
          << "trial " << trial << ", wanted " << wanted;
    }
  }
}

TEST(Complete, EveryNumberFromTheFewestToTheSamplesIsMetWithPackedEntries) {
  expect_every_number<PackedEntry>(1);
}

TEST(Complete, EveryNumberFromTheFewestToTheSamplesIsMetWithWideEntries) {
  expect_every_number<WideEntry>(2);
}

TEST(Complete, LargeBucketsMeetNumbersFarFromTheirOwn) {
  Random random(3);
  for (int trial = 0; trial < 20; ++trial) {
    const Values lengths = testing::random_lengths(random, 5000, 500);
    const FillLimits limits = testing::random_limits(random, 500);
    const std::uint64_t least = fewest(lengths, limits);
    for (int draw = 0; draw < 5; ++draw) {
      const std::uint64_t wanted = random.between(least, lengths.size());
      FilledBucket<PackedEntry> bucket = filled<PackedEntry>(lengths, limits);
      complete(bucket, wanted, 8, testing::view(lengths), limits);
      ASSERT_TRUE(is_right(bucket, wanted, lengths, limits)) << "wanted " << wanted;
    }
  }
}

TEST(Complete, BatchesThatAreNotRefilledAreUntouched) {
  Random random(4);
  const FillLimits limits = {.token_budget = 2000};
  for (int trial = 0; trial < 50; ++trial) {
    const Values lengths = testing::random_lengths(random, 6000, 200);
    const Batches before = testing::indices_of(filled<PackedEntry>(lengths, limits).batches);
    for (const std::uint64_t missing : {1U, 2U, 7U}) {
      for (const std::uint64_t tail : {8U, 64U}) {
        FilledBucket<PackedEntry> bucket = filled<PackedEntry>(lengths, limits);
        complete(bucket, before.size() + missing, tail, testing::view(lengths), limits);
        const Batches after = testing::indices_of(bucket.batches);
        const std::size_t kept = before.size() - std::max(tail, 8 * missing);
        ASSERT_TRUE(
            std::ranges::equal(std::span(before).first(kept), std::span(after).first(kept)));
      }
    }
  }
}

TEST(Complete, OneBatchLessLeavesMostBatchesUntouched) {
  Random random(5);
  const FillLimits limits = {.token_budget = 2000};
  for (int trial = 0; trial < 50; ++trial) {
    Values lengths(6000);  // Spread evenly, so that a shuffle pads much and sorting saves much.
    std::ranges::generate(lengths, [&] { return random.below(200); });
    FilledBucket<WideEntry> bucket = filled<WideEntry>(lengths, limits);
    const Batches before = testing::indices_of(bucket.batches);
    complete(bucket, before.size() - 1, 8, testing::view(lengths), limits);
    const Batches after = testing::indices_of(bucket.batches);
    const std::size_t kept = before.size() - 16;
    ASSERT_TRUE(std::ranges::equal(std::span(before).first(kept), std::span(after).first(kept)));
  }
}

TEST(Complete, TheNumberThatABucketHasChangesNothing) {
  Random random(6);
  const Values lengths = testing::random_lengths(random, 500, 100);
  const FillLimits limits = {.token_budget = 700};
  FilledBucket<PackedEntry> bucket = filled<PackedEntry>(lengths, limits);
  const Batches before = testing::indices_of(bucket.batches);
  complete(bucket, before.size(), 8, testing::view(lengths), limits);
  EXPECT_EQ(testing::indices_of(bucket.batches), before);
  EXPECT_EQ(bucket.arenas.size(), 1U);
}

TEST(Complete, EqualLengthsAreSpreadEvenly) {
  const Values lengths(96, 10);
  const FillLimits limits = {.token_budget = 320};  // Three batches of 32.
  FilledBucket<PackedEntry> bucket = filled<PackedEntry>(lengths, limits);
  complete(bucket, 4, 8, testing::view(lengths), limits);
  for (const auto& batch : bucket.batches) {
    EXPECT_EQ(batch.count, 24U);
  }
}

TEST(Complete, RefilledBatchesKeepToTheMultipleWhereTheyCan) {
  const Values lengths(64, 10);
  const FillLimits limits = {.token_budget = 160, .batch_size_multiple = 4};
  for (std::uint64_t wanted = 4; wanted <= 16; ++wanted) {
    FilledBucket<PackedEntry> bucket = filled<PackedEntry>(lengths, limits);
    complete(bucket, wanted, 8, testing::view(lengths), limits);
    ASSERT_TRUE(is_right(bucket, wanted, lengths, limits));
    EXPECT_TRUE(std::ranges::all_of(bucket.batches, [](const auto& batch) {
      return batch.count % 4 == 0;
    })) << wanted;
  }
}

TEST(Complete, ALimitAtTheTopOf64BitsIsScaledWithoutOverflow) {
  const std::uint64_t top = (std::uint64_t{1} << 63) - 1;
  const Values lengths(100, top / 50);
  for (const FillLimits& limits :
       {FillLimits{.token_budget = top}, FillLimits{.token_budget = top, .max_batch_size = top}}) {
    for (const std::uint64_t wanted : {2U, 3U, 50U, 100U}) {
      FilledBucket<WideEntry> bucket = filled<WideEntry>(lengths, limits);
      complete(bucket, wanted, 8, testing::view(lengths), limits);
      EXPECT_TRUE(is_right(bucket, wanted, lengths, limits)) << wanted;
    }
  }
}

TEST(CutInto, CutsInTheGivenOrderIntoNearEqualCost) {
  Random random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const Values lengths = testing::random_lengths(random, random.between(1, 200), 50);
    const FillLimits limits = testing::random_limits(random, 50);
    const auto entries = entries_of<PackedEntry>(lengths);
    FillLimits single = limits;
    single.batch_size_multiple = 1;
    const std::uint64_t least = count_batches(std::span<const PackedEntry>(entries), single);
    const std::uint64_t wanted = random.between(least, lengths.size());
    std::vector<Cut> cuts = cut_into(std::span<const PackedEntry>(entries), wanted, limits);
    ASSERT_EQ(cuts.size(), wanted);
    std::ranges::sort(cuts, {}, &Cut::begin);
    std::size_t end = 0;
    for (const Cut& cut : cuts) {
      ASSERT_EQ(cut.begin, end);
      ASSERT_LT(cut.begin, cut.end);
      end = cut.end;
      ASSERT_TRUE(testing::is_allowed(cut.end - cut.begin, cut.longest, limits));
      ASSERT_EQ(cut.longest,
                *std::max_element(lengths.begin() + static_cast<std::ptrdiff_t>(cut.begin),
                                  lengths.begin() + static_cast<std::ptrdiff_t>(end)));
    }
    ASSERT_EQ(end, lengths.size());
  }
}

TEST(CutInto, SortedSamplesCostNearlyTheSameInEachBatch) {
  Random random(8);
  Values lengths = testing::random_lengths(random, 4000, 100);
  std::ranges::sort(lengths);
  const FillLimits limits = {.token_budget = 100'000};
  const auto entries = entries_of<PackedEntry>(lengths);
  for (const std::uint64_t wanted : {8U, 16U, 31U}) {
    std::uint64_t most = 0;
    std::uint64_t sum = 0;
    for (const Cut& cut : cut_into(std::span<const PackedEntry>(entries), wanted, limits)) {
      const std::uint64_t cost = (cut.end - cut.begin) * width_of(cut.longest, 1);
      most = std::max(most, cost);
      sum += cost;
    }
    EXPECT_LT(most * wanted, sum * 115 / 100) << wanted;
  }
}

}  // namespace
}  // namespace evenstride
