// Classes and surveys of lengths against a plain scan, and every error's whole sentence.
#include "core/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "samples.h"

namespace evenstride {
namespace {

using testing::message_of;
using testing::Random;
using testing::Values;

constexpr std::uint64_t kTop = (std::uint64_t{1} << 63) - 1;

std::size_t digitize(std::uint64_t length, const Values& edges) {
  std::size_t bucket = 0;
  while (bucket < edges.size() && length >= edges[bucket]) {
    ++bucket;
  }
  return bucket;
}

bool is_too_long(std::uint64_t length, const FillLimits& limits, const Admission& admission) {
  return length > admission.max_length ||
         testing::padded_tokens(1, length, limits) > limits.token_budget;
}

std::size_t class_by_definition(std::uint64_t length, const Values& edges, const FillLimits& limits,
                                const Admission& admission) {
  const std::size_t num_buckets = edges.size() + 1;
  if (length == 0 && admission.empty != Empty::kKeep) {
    return num_buckets + 2;
  }
  if (is_too_long(length, limits, admission)) {
    return admission.too_long == TooLong::kAlone ? num_buckets : num_buckets + 1;
  }
  return digitize(length, edges);
}

Admission random_admission(Random& random, std::uint64_t longest) {
  Admission admission;
  admission.max_length = random.one_in(2) ? random.between(1, longest) : kUnlimited;
  admission.too_long = random.one_in(2) ? TooLong::kDrop : TooLong::kAlone;
  admission.empty = random.one_in(2) ? Empty::kDrop : Empty::kKeep;
  return admission;
}

TEST(Buckets, ClassesAreThoseOfAPlainScan) {
  Random random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const std::uint64_t longest = std::uint64_t{4} << random.below(20);
    const Values edges = testing::random_edges(random, 12, longest);
    const FillLimits limits = testing::random_limits(random, random.between(1, longest));
    const Admission admission = random_admission(random, longest);
    const Classes classes(edges, limits, admission, random.below(3 * longest));
    ASSERT_EQ(classes.num_buckets(), edges.size() + 1);
    ASSERT_EQ(classes.num_classes(), edges.size() + 4);
    Values lengths = testing::random_lengths(random, 200, longest);
    for (const std::uint64_t edge : edges) {
      lengths.insert(lengths.end(), {edge - 1, edge, edge + 1});
    }
    for (const std::uint64_t length : lengths) {
      ASSERT_EQ(classes(length), class_by_definition(length, edges, limits, admission)) << length;
      ASSERT_EQ(classes.bucket_of(length), digitize(length, edges)) << length;
    }
  }
}

TEST(Buckets, ClassesAreRightWhereTheTableEnds) {
  const std::array<std::uint64_t, 5> around = {65'534, 65'535, 65'536, 65'537, 65'538};
  for (const std::uint64_t edge : around) {
    for (const std::uint64_t budget : around) {
      for (const std::uint64_t max_length : around) {
        const FillLimits limits = {.token_budget = budget};
        const Admission admission = {.max_length = max_length, .too_long = TooLong::kDrop};
        for (const std::size_t num_samples : {65'535U, 65'536U, 1'000'000U}) {
          const Classes classes({edge}, limits, admission, num_samples);
          ASSERT_EQ(classes.table().size(), std::min<std::size_t>(num_samples, 65'536));
          for (const std::uint64_t length : around) {
            ASSERT_EQ(classes(length), class_by_definition(length, {edge}, limits, admission));
          }
        }
      }
    }
  }
}

TEST(Buckets, TheEndOfAdmittedLengthsIsTheFirstThatIsTooLong) {
  Random random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const FillLimits limits = testing::random_limits(random, random.between(1, 1000));
    const Admission admission = random_admission(random, 1000);
    const std::uint64_t end = end_of_admitted(limits, admission.max_length);
    ASSERT_TRUE(is_too_long(end, limits, admission));
    ASSERT_FALSE(is_too_long(end - 1, limits, admission));
  }
  EXPECT_EQ(end_of_admitted({.token_budget = kTop}, kUnlimited), kTop + 1);
}

TEST(Buckets, TheEndOfLengthsIsTheFirstWhoseWidthIsNotBelow2ToThe63) {
  Random random(6);
  for (int trial = 0; trial < 1000; ++trial) {
    const FillLimits limits = {.token_budget = kTop,
                               .pad_to_multiple_of = random.between(1, kTop >> random.below(63))};
    const std::uint64_t end = end_of_lengths(limits);
    ASSERT_TRUE(testing::padded_tokens(1, end, limits) > kTop);
    ASSERT_TRUE(testing::padded_tokens(1, end - 1, limits) <= kTop);
  }
}

TEST(Buckets, EveryFewAdjacentBucketsAreMerged) {
  const Values edges = {10, 20, 30, 40, 50};  // Six buckets.
  EXPECT_EQ(merge_edges(edges, 1), edges);
  EXPECT_EQ(merge_edges(edges, 2), (Values{20, 40}));
  EXPECT_EQ(merge_edges(edges, 3), (Values{30}));
  EXPECT_EQ(merge_edges(edges, 4), (Values{40}));
  EXPECT_EQ(merge_edges(edges, 5), (Values{50}));
  for (const std::uint64_t all : {std::uint64_t{6}, std::uint64_t{7}, kTop}) {
    EXPECT_EQ(merge_edges(edges, all), Values());
  }
  EXPECT_EQ(merge_edges({}, 1), Values());
}

TEST(Buckets, BadEdgesAreNamed) {
  const auto message = [](const Values& edges) { return message_of([&] { check_edges(edges); }); };
  EXPECT_EQ(message({}), "nothing was thrown");
  EXPECT_EQ(message({1, 2, kTop}), "nothing was thrown");
  EXPECT_EQ(message({0, 5}),
            "`buckets[0]` must be at least 1, for edges to strictly increase from above 0, "
            "but is 0.");
  EXPECT_EQ(message({5, 7, 7}),
            "`buckets[2]` must be at least 8, for edges to strictly increase from above 0, "
            "but is 7.");
  EXPECT_EQ(message({5, 4}),
            "`buckets[1]` must be at least 6, for edges to strictly increase from above 0, "
            "but is 4.");
  Values many = testing::indices_below(32'000);
  std::ranges::for_each(many, [](std::uint64_t& edge) { ++edge; });
  EXPECT_EQ(message(many), "`buckets` must be at most 32000, but are 32001.");
  many.pop_back();
  EXPECT_EQ(message(many), "nothing was thrown");
}

TEST(Buckets, NamesAreParsed) {
  EXPECT_EQ(parse_too_long("error"), TooLong::kError);
  EXPECT_EQ(parse_too_long("drop"), TooLong::kDrop);
  EXPECT_EQ(parse_too_long("alone"), TooLong::kAlone);
  EXPECT_EQ(parse_empty("keep"), Empty::kKeep);
  EXPECT_EQ(parse_empty("drop"), Empty::kDrop);
  EXPECT_EQ(parse_empty("error"), Empty::kError);
  EXPECT_EQ(message_of([] { (void)parse_too_long("keep"); }),
            "`too_long` must be one of 'error', 'drop', 'alone', but is 'keep'.");
  EXPECT_EQ(message_of([] { (void)parse_empty(""); }),
            "`empty` must be one of 'keep', 'drop', 'error', but is ''.");
}

TEST(Buckets, PartsBeginAtMultiplesOf256AndCoverAllSamples) {
  Random random(3);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::size_t samples = random.below(5000);
    const std::size_t parts = random.between(1, 9);
    EXPECT_EQ(part_begin(samples, 0, parts), 0U);
    EXPECT_EQ(part_begin(samples, parts, parts), samples);
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t begin = part_begin(samples, part, parts);
      ASSERT_LE(begin, part_begin(samples, part + 1, parts));
      ASSERT_TRUE(begin % 256 == 0 || begin == samples);
    }
  }
}

template <class T>
void expect_survey_by_definition(Random& random, std::size_t size, int num_threads) {
  const std::uint64_t most = std::min<std::uint64_t>(
      static_cast<std::uint64_t>(std::numeric_limits<T>::max()), std::uint64_t{1} << 40);
  const std::uint64_t longest = random.between(1, most);
  const Values values = testing::random_lengths(random, size, longest);
  const std::vector<T> lengths(values.begin(), values.end());
  const Values edges = testing::random_edges(random, 8, longest);
  const FillLimits limits = testing::random_limits(random, random.between(1, longest));
  const Admission admission = random_admission(random, longest);
  const Classes classes(edges, limits, admission, random.between(1, 2000));
  Survey expected;
  expected.classes.resize(classes.num_classes());
  for (const std::uint64_t length : values) {
    const std::size_t label = class_by_definition(length, edges, limits, admission);
    ++expected.classes[label].samples;
    expected.classes[label].tokens += length;
    if (label <= classes.alone()) {
      ++expected.admitted.samples;
      expected.admitted.tokens += length;
      expected.longest = std::max(expected.longest, length);
    }
  }
  Team team(num_threads);
  if (expected.admitted.samples == 0) {
    EXPECT_THROW((void)survey(std::span<const T>(lengths), classes, limits, admission, team),
                 std::invalid_argument);
    return;
  }
  const Survey found = survey(std::span<const T>(lengths), classes, limits, admission, team);
  EXPECT_EQ(found.longest, expected.longest);
  EXPECT_EQ(found.admitted.samples, expected.admitted.samples);
  EXPECT_EQ(found.admitted.tokens, expected.admitted.tokens);
  const auto parts = static_cast<std::size_t>(num_threads);
  ASSERT_EQ(found.part_samples.size(), parts * classes.num_classes());
  Values in_parts(parts * classes.num_classes());
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t end = part_begin(values.size(), part + 1, parts);
    for (std::size_t i = part_begin(values.size(), part, parts); i < end; ++i) {
      ++in_parts[part * classes.num_classes() + classes(values[i])];
    }
  }
  EXPECT_EQ(found.part_samples, in_parts);
  for (std::size_t label = 0; label < classes.num_classes(); ++label) {
    EXPECT_EQ(found.classes[label].samples, expected.classes[label].samples) << label;
    EXPECT_EQ(found.classes[label].tokens, expected.classes[label].tokens) << label;
  }
}

TEST(Buckets, ASurveyCountsEveryClassInEveryTypeAndPart) {
  Random random(4);
  for (int trial = 0; trial < 20; ++trial) {
    for (const int num_threads : {1, 2, 3, 5}) {
      const std::size_t size = random.between(1, 3000);
      expect_survey_by_definition<std::uint8_t>(random, size, num_threads);
      expect_survey_by_definition<std::uint16_t>(random, size, num_threads);
      expect_survey_by_definition<std::uint32_t>(random, size, num_threads);
      expect_survey_by_definition<std::uint64_t>(random, size, num_threads);
      expect_survey_by_definition<std::int8_t>(random, size, num_threads);
      expect_survey_by_definition<std::int16_t>(random, size, num_threads);
      expect_survey_by_definition<std::int32_t>(random, size, num_threads);
      expect_survey_by_definition<std::int64_t>(random, size, num_threads);
    }
  }
}

// Counts are gathered in blocks of 65,536 samples.
TEST(Buckets, ASurveyCountsMoreSamplesThanABlockHas) {
  Random random(7);
  for (const std::size_t size : {65'535U, 65'536U, 65'537U, 300'000U}) {
    expect_survey_by_definition<std::uint16_t>(random, size, 1);
    expect_survey_by_definition<std::uint32_t>(random, size, 2);
    expect_survey_by_definition<std::int64_t>(random, size, 3);
  }
  const std::vector<std::uint16_t> longest(200'000, 65'534);
  const FillLimits limits = {.token_budget = 100'000};
  const Classes classes({}, limits, {}, longest.size());
  Team team(1);
  const Survey found = survey(std::span<const std::uint16_t>(longest), classes, limits, {}, team);
  EXPECT_EQ(found.admitted.samples, 200'000U);
  EXPECT_EQ(found.admitted.tokens, std::uint64_t{200'000} * 65'534);
}

template <class T = std::int64_t>
std::string survey_message(const std::vector<T>& lengths, const FillLimits& limits,
                           const Admission& admission, int num_threads = 1) {
  const Classes classes({}, limits, admission, lengths.size());
  Team team(num_threads);
  return message_of(
      [&] { (void)survey(std::span<const T>(lengths), classes, limits, admission, team); });
}

TEST(Buckets, ASurveyNamesTheRuleAndTheValue) {
  const FillLimits unpadded = {.token_budget = 100};
  const Admission alone = {.too_long = TooLong::kAlone};
  EXPECT_EQ(survey_message({5, -3}, unpadded, {}),
            "`lengths[1]` must be in [0, 2**63), but is -3.");
  EXPECT_EQ(survey_message<std::int8_t>({5, -128}, unpadded, {}),
            "`lengths[1]` must be in [0, 2**63), but is -128.");
  EXPECT_EQ(survey_message<std::uint64_t>({kTop + 1}, unpadded, alone),
            "`lengths[0]` must be in [0, 2**63), but is 9223372036854775808.");
  EXPECT_EQ(survey_message<std::uint64_t>({kTop}, unpadded, alone), "nothing was thrown");
  const FillLimits limits = {.token_budget = 100, .pad_to_multiple_of = 8};
  EXPECT_EQ(survey_message<std::uint64_t>({kTop}, limits, alone),
            "`lengths[0]` must be in [0, 9223372036854775801) for pad_to_multiple_of = 8, but is "
            "9223372036854775807.");
  EXPECT_EQ(survey_message({1, 2, 97}, limits, {}),
            "`lengths[2]` must be in [0, 96] for token_budget = 100, but is 97; pass "
            "too_long='drop' to leave such samples out, or too_long='alone' to give each a batch "
            "of its own.");
  EXPECT_EQ(survey_message({51}, limits, {.max_length = 50}),
            "`lengths[0]` must be in [0, max_length = 50] for token_budget = 100, but is 51; pass "
            "too_long='drop' to leave such samples out, or too_long='alone' to give each a batch "
            "of its own.");
  EXPECT_EQ(survey_message({4, 0}, limits, {.empty = Empty::kError}),
            "`lengths[1]` must be at least 1, but is 0; pass empty='keep' to count it as one "
            "token, or empty='drop' to leave it out.");
  EXPECT_EQ(survey_message({}, limits, {}),
            "`lengths` must have at least 1 sample, but has 0 samples.");
  const Admission dropping = {.too_long = TooLong::kDrop, .empty = Empty::kDrop};
  EXPECT_EQ(survey_message({97, 0, 200}, limits, dropping),
            "`lengths` must leave at least 1 sample, but 0 samples are left of 3 (2 too long, 1 "
            "empty).");
}

TEST(Buckets, TheFirstBadSampleIsNamedWhateverTheNumberOfThreads) {
  Random random(5);
  const FillLimits limits = {.token_budget = 100};
  const Admission admission = {.empty = Empty::kError};
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::int64_t> lengths(random.between(1, 3000), 7);
    std::size_t first = lengths.size();
    for (std::uint64_t bad = random.between(1, 5); bad > 0; --bad) {
      const std::size_t i = random.below(lengths.size());
      lengths[i] = std::array<std::int64_t, 3>{-1, 0, 101}.at(random.below(3));
      first = std::min(first, i);
    }
    const std::string message = survey_message(lengths, limits, admission);
    ASSERT_TRUE(message.starts_with("`lengths[" + std::to_string(first) + "]` ")) << message;
    for (const int num_threads : {2, 3, 5, 8}) {
      ASSERT_EQ(survey_message(lengths, limits, admission, num_threads), message);
    }
  }
}

TEST(Buckets, TokensSaturate) {
  for (const int num_threads : {1, 3}) {
    const Values lengths(1000, kTop);
    const FillLimits limits = {.token_budget = kTop};
    const Classes classes({1}, limits, {}, lengths.size());
    Team team(num_threads);
    const Survey found = survey(testing::view(lengths), classes, limits, {}, team);
    EXPECT_EQ(found.classes[1].tokens, kUnlimited);
    EXPECT_EQ(found.admitted.tokens, kUnlimited);
    EXPECT_EQ(found.admitted.samples, 1000U);
    EXPECT_EQ(found.longest, kTop);
  }
}

}  // namespace
}  // namespace evenstride
