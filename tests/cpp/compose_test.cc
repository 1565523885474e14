// Compositions: coverage, limits, and the order in which each one fills its samples.
#include "core/compose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "composed.h"
#include "core/sort.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Batches;
using testing::Composed;
using testing::Problem;
using testing::Random;
using testing::Values;

constexpr std::array kCompositions = {Composition::kShuffle, Composition::kWindow,
                                      Composition::kFrozen, Composition::kSorted};

// The batches of each bucket, then those of each bucket's samples that are alone.
template <class Entry>
std::vector<Batches> all_batches(const std::vector<FilledBucket<Entry>>& buckets) {
  std::vector<Batches> batches;
  for (const FilledBucket<Entry>& bucket : buckets) {
    batches.push_back(testing::indices_of(bucket.batches));
  }
  for (const FilledBucket<Entry>& bucket : buckets) {
    batches.push_back(testing::indices_of(bucket.alone));
  }
  return batches;
}

// Returns the indices of the samples of class `label`.
Values members(const Problem& problem, std::size_t label) {
  const Classes classes = problem.classes();
  Values indices;
  for (std::size_t i = 0; i < problem.lengths.size(); ++i) {
    if (classes(problem.lengths[i]) == label) {
      indices.push_back(i);
    }
  }
  return indices;
}

TEST(Compose, EachSampleIsInOneBatchOfItsBucketWithinTheLimits) {
  Random random(1);
  for (int trial = 0; trial < 400; ++trial) {
    Problem problem = testing::random_problem(random, 400);
    problem.options.composition = kCompositions.at(static_cast<std::size_t>(trial) % 4);
    const Composed<PackedEntry> composed(problem);
    const std::size_t num_buckets = composed.classes().num_buckets();
    ASSERT_EQ(composed.buckets.size(), num_buckets);
    for (std::size_t k = 0; k < num_buckets; ++k) {
      const auto& bucket = composed.buckets[k];
      const Batches batches = testing::indices_of(bucket.batches);
      ASSERT_EQ(testing::sorted(testing::joined(batches)), members(problem, k)) << trial;
      ASSERT_TRUE(testing::keep_limits(batches, problem.lengths, problem.options.limits)) << trial;
      ASSERT_EQ(bucket.samples, testing::joined(batches).size());
      for (std::size_t i = 0; i < batches.size(); ++i) {
        ASSERT_EQ(bucket.batches[i].longest, testing::longest_of(batches[i], problem.lengths));
      }
    }
  }
}

TEST(Compose, SamplesThatAreAloneAreInTheLongestBucketOneByOne) {
  Random random(2);
  for (int trial = 0; trial < 100; ++trial) {
    Problem problem = testing::random_problem(random, 300);
    problem.options.composition = kCompositions.at(static_cast<std::size_t>(trial) % 4);
    problem.admission = {.max_length = 20, .too_long = TooLong::kAlone};
    problem.limit_admission();
    const Composed<WideEntry> composed(problem);
    for (std::size_t k = 0; k < composed.buckets.size(); ++k) {
      const Batches alone = testing::indices_of(composed.buckets[k].alone);
      ASSERT_TRUE(std::ranges::all_of(alone, [](const Values& one) { return one.size() == 1; }));
      ASSERT_EQ(testing::sorted(testing::joined(alone)),
                k + 1 < composed.buckets.size() ? Values()
                                                : members(problem, composed.classes().alone()));
    }
  }
}

TEST(Compose, PackedAndWideEntriesAndAllNumbersOfThreadsComposeAlike) {
  Random random(3);
  for (int trial = 0; trial < 60; ++trial) {
    Problem problem = testing::random_problem(random, 3000);
    problem.options.composition = kCompositions.at(static_cast<std::size_t>(trial) % 4);
    const auto expected = all_batches(Composed<PackedEntry>(problem).buckets);
    for (const int num_threads : {1, 2, 3, 5}) {
      ASSERT_EQ(all_batches(Composed<WideEntry>(problem, num_threads).buckets), expected);
      ASSERT_EQ(all_batches(Composed<PackedEntry>(problem, num_threads).buckets), expected);
    }
  }
}

Problem one_bucket(Composition composition, std::size_t size, std::uint64_t window = 1024) {
  Random random(4);
  Problem problem;
  problem.lengths = testing::random_lengths(random, size, 300);
  problem.options = {
      .composition = composition, .window = window, .limits = {.token_budget = 3000}};
  problem.stream = Stream(size);
  return problem;
}

// Several cells a bucket; the largest sets above fit one.
TEST(Compose, BucketsOfManyCellsAreCoveredAndTheSameForEveryNumberOfThreads) {
  for (const Composition composition : kCompositions) {
    const Problem problem = one_bucket(composition, 150'000, 100);
    const auto expected = all_batches(Composed<PackedEntry>(problem).buckets);
    ASSERT_EQ(testing::sorted(testing::joined(expected[0])), testing::indices_below(150'000));
    EXPECT_TRUE(testing::keep_limits(expected[0], problem.lengths, problem.options.limits));
    for (const int num_threads : {2, 3, 5}) {
      ASSERT_EQ(all_batches(Composed<WideEntry>(problem, num_threads).buckets), expected);
    }
  }
}

TEST(Compose, OpenBatchesOfCellsAreJoined) {
  Problem problem = one_bucket(Composition::kShuffle, 300'000);
  problem.lengths.assign(300'000, 100);  // 30 a batch; cells hold no multiple of 30.
  EXPECT_EQ(Composed<PackedEntry>(problem).buckets[0].batches.size(), 10'000U);
}

TEST(Compose, FrozenGoesByLengthThenByIndexWhateverTheStream) {
  Random random(5);
  for (int trial = 0; trial < 100; ++trial) {
    Problem problem = testing::random_problem(random, 500);
    for (const Composition composition : {Composition::kFrozen, Composition::kSorted}) {
      problem.options.composition = composition;
      const Composed<PackedEntry> composed(problem);
      for (std::size_t k = 0; k < composed.buckets.size(); ++k) {
        Values expected = members(problem, k);
        std::ranges::stable_sort(expected, [&](std::uint64_t a, std::uint64_t b) {
          return composition == Composition::kFrozen ? problem.lengths[a] < problem.lengths[b]
                                                     : problem.lengths[a] > problem.lengths[b];
        });
        ASSERT_EQ(testing::joined(testing::indices_of(composed.buckets[k].batches)), expected);
      }
      const auto batches = all_batches(composed.buckets);
      problem.stream = Stream(random.next());
      ASSERT_EQ(all_batches(Composed<PackedEntry>(problem).buckets), batches);
    }
  }
}

TEST(Compose, ShuffleAndWindowAreComposedAnewByEveryStream) {
  for (const Composition composition : {Composition::kShuffle, Composition::kWindow}) {
    Problem problem = one_bucket(composition, 2000, 50);
    const auto first = all_batches(Composed<PackedEntry>(problem).buckets);
    problem.stream = Stream(1);
    EXPECT_NE(all_batches(Composed<PackedEntry>(problem).buckets), first);
  }
}

// The last batch before the pool may be anywhere in the runs that it spans, so those are left out.
TEST(Compose, EveryRunOfAWindowIsSortedAndEverySecondOneDownwards) {
  constexpr std::size_t kWindow = 100;
  constexpr std::size_t kRuns = 20;
  const Problem problem = one_bucket(Composition::kWindow, kRuns * kWindow + 57, kWindow);
  const Composed<PackedEntry> composed(problem);
  const Values order = testing::joined(testing::indices_of(composed.buckets[0].batches));
  std::size_t most = 0;
  for (const auto& batch : composed.buckets[0].batches) {
    most = std::max<std::size_t>(most, batch.count);
  }
  const std::size_t sure = (kRuns * kWindow - most) / kWindow;
  ASSERT_GT(sure, kRuns / 2);
  for (std::size_t run = 0; run < sure; ++run) {
    Values lengths;
    for (std::size_t i = run * kWindow; i < (run + 1) * kWindow; ++i) {
      lengths.push_back(problem.lengths[order[i]]);
    }
    if (run % 2 == 1) {
      std::ranges::reverse(lengths);
    }
    EXPECT_TRUE(std::ranges::is_sorted(lengths)) << "run " << run;
  }
}

TEST(Compose, AWindowPadsLessThanAShuffle) {
  const auto num_batches = [](Composition composition) {
    return Composed<PackedEntry>(one_bucket(composition, 20'000, 512)).buckets[0].batches.size();
  };
  const auto shuffled = static_cast<double>(num_batches(Composition::kShuffle));
  const auto windowed = static_cast<double>(num_batches(Composition::kWindow));
  const auto frozen = static_cast<double>(num_batches(Composition::kFrozen));
  EXPECT_LT(windowed, 0.9 * shuffled);
  EXPECT_LT(windowed, 1.05 * frozen);
  EXPECT_GE(windowed, frozen);
}

TEST(Compose, ARunAtTheTopOf64BitsIsNoRun) {
  const Problem shuffled = one_bucket(Composition::kShuffle, 500);
  const Problem windowed = one_bucket(Composition::kWindow, 500, kUnlimited);
  const auto batches = all_batches(Composed<PackedEntry>(windowed).buckets);
  EXPECT_EQ(testing::sorted(testing::joined(batches[0])), testing::indices_below(500));
  EXPECT_LT(batches[0].size(), all_batches(Composed<PackedEntry>(shuffled).buckets)[0].size());
}

template <class Entry>
std::vector<Entry> random_entries(Random& random, std::size_t size) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < size; ++i) {
    entries.emplace_back(random.below(30), i);
  }
  return entries;
}

TEST(Arrange, SortsWholeRunsAndLeavesTheRest) {
  Random random(6);
  for (int trial = 0; trial < 500; ++trial) {
    const ComposeOptions options = {
        .composition = Composition::kWindow, .window = random.between(1, 60), .limits = {}};
    std::vector<PackedEntry> entries = random_entries<PackedEntry>(random, random.below(200));
    std::vector<PackedEntry> expected = entries;
    std::size_t settled = 0;
    for (bool is_up = true; expected.size() - settled >= options.window; is_up = !is_up) {
      const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(settled);
      std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(options.window),
                       [&](const PackedEntry& a, const PackedEntry& b) {
                         return is_up ? a.length() < b.length() : a.length() > b.length();
                       });
      settled += options.window;
    }
    std::vector<PackedEntry> scratch(entries.size());
    ASSERT_EQ(arrange(std::span(entries), std::span(scratch), options), settled);
    ASSERT_TRUE(
        std::ranges::equal(entries, expected, {}, &PackedEntry::index, &PackedEntry::index));
  }
}

TEST(Arrange, AShuffleIsSettledAsItIs) {
  Random random(7);
  std::vector<WideEntry> entries = random_entries<WideEntry>(random, 50);
  EXPECT_EQ(arrange(std::span(entries), std::span<WideEntry>(), ComposeOptions()), 50U);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].index(), i);
  }
}

TEST(Compose, NamesAreParsed) {
  EXPECT_EQ(parse_composition("shuffle"), Composition::kShuffle);
  EXPECT_EQ(parse_composition("window"), Composition::kWindow);
  EXPECT_EQ(parse_composition("frozen"), Composition::kFrozen);
  EXPECT_EQ(testing::message_of([] { (void)parse_composition("sorted"); }),
            "`composition` must be one of 'shuffle', 'window', 'frozen', but is 'sorted'.");
}

}  // namespace
}  // namespace evenstride
