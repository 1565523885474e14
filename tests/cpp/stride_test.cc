// The order `stride` against its definition, its bound, and what it promises on `data/`.
#include "core/stride.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/order.h"
#include "label_statistics.h"

namespace evenstride {
namespace {

using testing::Counts;
using testing::Labels;
using testing::seed_counts;

__extension__ using Wide = unsigned __int128;
__extension__ using SignedWide = __int128;

constexpr std::uint64_t kTop = ~std::uint64_t{0};

Labels stride(const Counts& counts, std::uint32_t jitter, Stream stream, unsigned slice_bits = 0,
              int num_threads = 1) {
  Team team(num_threads);
  return stride_order(counts, jitter, stream, slice_bits, team);
}

// The formula in core/stride.h, transcribed.
std::uint64_t place_by_definition(std::uint64_t step, std::uint64_t num_steps, std::uint32_t jitter,
                                  Stream bucket) {
  const auto phase = static_cast<SignedWide>(bucket(0) >> 33);
  const auto offset =
      static_cast<SignedWide>((static_cast<Wide>(bucket(step + 1)) * 2 * jitter) >> 64) - jitter;
  const SignedWide strides = (static_cast<SignedWide>(step) << 31) + phase + offset;
  const Wide place = (static_cast<Wide>(strides < 0 ? 0 : strides) * (kTop / num_steps)) >> 31;
  return place >= kTop ? kTop - 1 : static_cast<std::uint64_t>(place);
}

Labels stride_by_definition(const Counts& counts, std::uint32_t jitter, Stream stream) {
  std::vector<std::pair<std::uint64_t, std::uint16_t>> steps;
  for (std::size_t label = 0; label < counts.size(); ++label) {
    for (std::uint64_t step = 0; step < counts[label]; ++step) {
      steps.emplace_back(place_by_definition(step, counts[label], jitter, stream.substream(label)),
                         static_cast<std::uint16_t>(label));
    }
  }
  std::ranges::stable_sort(steps);
  Labels labels;
  for (const auto& step : steps) {
    labels.push_back(step.second);
  }
  return labels;
}

// The bound in core/stride.h, transcribed.
std::vector<double> bounds(const Counts& counts, double jitter, Stream stream) {
  const auto total = static_cast<double>(testing::sum(counts));
  std::vector<double> result;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const double q = static_cast<double>(counts[k]) / total;
    double ahead = 0;
    double behind = 0;
    for (std::size_t l = 0; l < counts.size(); ++l) {
      const double phase = std::ldexp(static_cast<double>(stream.substream(l)(0) >> 33), -31);
      if (counts[l] != 0) {
        ahead += l == k ? (1 - q) * (1 - phase + jitter) : q * (phase + jitter);
        behind += l == k ? (1 - q) * (phase + jitter) : q * (1 - phase + jitter);
      }
    }
    result.push_back(counts[k] == 0 ? 0 : std::max(ahead, behind));
  }
  return result;
}

constexpr std::array<std::uint32_t, 4> kJitters = {0, 1, 1U << 29, (1U << 30) - 1};

TEST(Stride, EqualsAStableSortOfThePlacesByDefinition) {
  Draws random(Stream(1));
  for (int trial = 0; trial < 2000; ++trial) {
    const Counts counts = testing::random_counts(random);
    const std::uint32_t jitter = kJitters[random.below(kJitters.size())];
    const Stream stream(random.next());
    const auto slice_bits = static_cast<unsigned>(random.below(10));
    ASSERT_EQ(stride(counts, jitter, stream, slice_bits),
              stride_by_definition(counts, jitter, stream))
        << "trial " << trial;
  }
}

TEST(Stride, IsTheSameForEveryNumberOfSlicesAndThreads) {
  const Stream stream = Stream::of(3, 4);
  const Labels expected = stride_by_definition(seed_counts(), fixed_jitter(0.25), stream);
  for (const int num_threads : {1, 2, 3, 8}) {
    for (const unsigned slice_bits : {0U, 1U, 4U, 7U, 18U}) {
      ASSERT_EQ(stride(seed_counts(), fixed_jitter(0.25), stream, slice_bits, num_threads),
                expected)
          << num_threads << " threads, 2^" << slice_bits << " slices";
    }
  }
}

TEST(Stride, EqualPlacesComeByLabel) {
  // Of buckets with one step each, those drawn to before the epoch are all in place 0, and those
  // drawn to after it all in the last place.
  const Counts counts(2000, 1);
  const std::uint32_t jitter = (1U << 30) - 1;
  const Labels labels = stride(counts, jitter, Stream(5), 3);
  EXPECT_EQ(labels, stride_by_definition(counts, jitter, Stream(5)));
  const auto first_fall = std::ranges::adjacent_find(labels, std::greater<>());
  EXPECT_GT(first_fall - labels.begin(), 100);
}

TEST(Stride, PlacesRiseByDefinitionInABucketOfAsManyStepsAsThereCanBe) {
  const std::uint64_t num_steps = 0xFFFF'FFFF;
  const std::uint32_t jitter = (1U << 30) - 1;
  Draws random(Stream(2));
  std::vector<std::uint64_t> starts = {0, (std::uint64_t{1} << 31) - 50, num_steps - 100};
  for (int trial = 0; trial < 200; ++trial) {
    starts.push_back(random.below(num_steps - 100));
  }
  for (const std::uint64_t start : starts) {
    const Stride bucket(num_steps, jitter, Stream(start));
    std::uint64_t last = 0;
    for (std::uint64_t step = start; step < start + 100; ++step) {
      const std::uint64_t place = bucket.place(step);
      ASSERT_EQ(place, place_by_definition(step, num_steps, jitter, Stream(start)));
      ASSERT_GE(place, last);
      last = place;
    }
  }
}

TEST(Stride, TheLastPlaceIsTwoBelow2To64) {
  std::uint64_t last = 0;
  for (std::uint64_t key = 0; key < 100; ++key) {
    last = std::max(last, Stride(1, (1U << 30) - 1, Stream(key)).place(0));
  }
  EXPECT_EQ(last, kTop - 1);
}

TEST(Stride, FindsTheFirstStepFromAnyPlace) {
  Draws random(Stream(4));
  for (const std::uint64_t num_steps : {1UL, 2UL, 3UL, 1000UL, 19581UL, 1UL << 31, 0xFFFF'FFFFUL}) {
    for (int trial = 0; trial < 300; ++trial) {
      const Stride bucket(num_steps, kJitters[random.below(kJitters.size())],
                          Stream(random.next()));
      for (const std::uint64_t bound : {random.next(), random.next() >> 30, ~(random.next() >> 30),
                                        kTop, bucket.place(random.below(num_steps))}) {
        const std::uint64_t step = bucket.first_from(bound);
        ASSERT_LE(step, num_steps);
        ASSERT_TRUE(step == num_steps || bucket.place(step) >= bound) << step;
        ASSERT_TRUE(step == 0 || bucket.place(step - 1) < bound) << step;
      }
    }
  }
}

TEST(Stride, DiscrepancyIsWithinTheBoundOfThePhases) {
  Draws random(Stream(3));
  for (int trial = 0; trial < 3000; ++trial) {
    const Counts counts = testing::random_counts(random);
    const std::uint32_t jitter = kJitters[random.below(kJitters.size())];
    const Stream stream(random.next());
    const auto reached = testing::discrepancies(stride(counts, jitter, stream), counts);
    const auto allowed = bounds(counts, std::ldexp(jitter, -31), stream);
    for (std::size_t k = 0; k < counts.size(); ++k) {
      ASSERT_LE(reached[k], allowed[k] + 1e-6) << "trial " << trial << ", bucket " << k;
    }
  }
}

TEST(Stride, KeepsItsPromisesOnTheSeedCounts) {
  const std::size_t total = testing::sum(seed_counts());
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    const Labels labels = stride(seed_counts(), fixed_jitter(0.25), Stream::of(0, epoch));
    ASSERT_EQ(testing::counts_of(labels, 6), seed_counts());
    EXPECT_LE(testing::longest_run(labels), 4U);
    EXPECT_GT(testing::share_in_runs_of_one(labels), 0.83);
    EXPECT_LT(testing::share_in_runs_of_one(labels), 0.85);
    EXPECT_LT(testing::discrepancy(labels, seed_counts()), 2.5);
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      const std::size_t begin = quarter * total / 4;
      const std::size_t end = (quarter + 1) * total / 4;
      const auto counts = testing::counts_of(std::span(labels).subspan(begin, end - begin), 6);
      for (std::size_t k = 0; k < 6; ++k) {
        const double share = static_cast<double>(counts[k]) / static_cast<double>(end - begin);
        const double overall = static_cast<double>(seed_counts()[k]) / static_cast<double>(total);
        EXPECT_NEAR(share, overall, 0.001) << "bucket " << k << ", quarter " << quarter;
      }
    }
  }
}

TEST(Stride, TwoEpochsAgreeOnlyByChance) {
  double total = 0;
  Labels last = stride(seed_counts(), fixed_jitter(0.25), Stream::of(0, 0));
  for (std::uint64_t epoch = 1; epoch <= 100; ++epoch) {
    Labels labels = stride(seed_counts(), fixed_jitter(0.25), Stream::of(0, epoch));
    total += testing::agreement(last, labels);
    last = std::move(labels);
  }
  EXPECT_NEAR(total / 100, 0.254, 0.01);
}

TEST(Stride, WithoutJitterOneStepInTenComesEveryNineToElevenSteps) {
  const Labels labels = stride({100, 900}, 0, Stream(7));
  std::vector<std::size_t> rare;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == 0) {
      rare.push_back(t);
    }
  }
  for (std::size_t i = 1; i < rare.size(); ++i) {
    EXPECT_GE(rare[i] - rare[i - 1], 9U);
    EXPECT_LE(rare[i] - rare[i - 1], 11U);
  }
}

TEST(Stride, TenOfAHundredStepsComeAsTwoOrThreeInEveryQuarter) {
  for (std::uint64_t epoch = 0; epoch < 2000; ++epoch) {
    const Labels labels = stride({10, 0, 90}, fixed_jitter(0.25), Stream::of(0, epoch));
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      const auto counts = testing::counts_of(std::span(labels).subspan(25 * quarter, 25), 3);
      EXPECT_GE(counts[0], 2U);
      EXPECT_LE(counts[0], 3U);
      EXPECT_EQ(counts[1], 0U);
    }
  }
}

TEST(Stride, SlicesHaveAFewThousandStepsOrSeveralABucket) {
  EXPECT_EQ(stride_slice_bits(0, 6), 0U);
  EXPECT_EQ(stride_slice_bits(2047, 6), 0U);
  EXPECT_EQ(stride_slice_bits(46691, 6), 5U);
  EXPECT_EQ(stride_slice_bits(46691, 6000), 0U);
  EXPECT_EQ(stride_slice_bits(0xFFFF'FFFF, 6), 21U);
}

}  // namespace
}  // namespace evenstride
