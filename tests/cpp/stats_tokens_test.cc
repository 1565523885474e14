// The real tokens of batches against a plain sum.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/stats.h"
#include "core/threads.h"

namespace evenstride {
namespace {

using Offsets = std::vector<std::int64_t>;
using Tokens = std::vector<std::uint64_t>;

template <class Length, class Index>
Tokens tokens_of(const std::vector<Length>& lengths, const std::vector<Index>& indices,
                 const Offsets& offsets, int num_threads = 1) {
  Team team(num_threads);
  return batch_tokens(std::span(lengths), std::span(indices), offsets, team);
}

template <class Length, class Index>
void expect_plain_sums(std::uint64_t longest) {
  std::mt19937_64 random(longest);
  std::vector<Length> lengths(1 + random() % 3000);
  for (Length& length : lengths) {
    length = static_cast<Length>(random() % (longest + 1));
  }
  std::vector<Index> indices(50'000);
  for (Index& index : indices) {
    index = static_cast<Index>(random() % lengths.size());
  }
  Offsets offsets = {7};  // Batches need not begin at the first index nor end at the last.
  while (offsets.back() < 49'900) {
    offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 10));
  }
  Tokens expected;
  for (std::size_t batch = 0; batch + 1 < offsets.size(); ++batch) {
    expected.push_back(0);
    for (auto i = offsets[batch]; i < offsets[batch + 1]; ++i) {
      expected.back() += static_cast<std::uint64_t>(
          lengths[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])]);
    }
  }
  EXPECT_EQ(tokens_of(lengths, indices, offsets, 1), expected);
  EXPECT_EQ(tokens_of(lengths, indices, offsets, 3), expected);
}

TEST(StatsTokensTest, EveryTypeOfLengthsAndIndicesIsSummedAlike) {
  expect_plain_sums<std::uint8_t, std::uint32_t>(255);
  expect_plain_sums<std::int8_t, std::uint32_t>(127);
  expect_plain_sums<std::uint16_t, std::uint64_t>(65'535);
  expect_plain_sums<std::int16_t, std::uint64_t>(32'767);
  expect_plain_sums<std::uint32_t, std::uint32_t>(4'294'967'295);
  expect_plain_sums<std::int32_t, std::uint64_t>(2'147'483'647);
  expect_plain_sums<std::uint64_t, std::uint32_t>(std::uint64_t{1} << 50);
  expect_plain_sums<std::int64_t, std::uint64_t>(std::uint64_t{1} << 50);
  expect_plain_sums<std::uint16_t, std::int64_t>(65'535);
}

TEST(StatsTokensTest, NoBatchesAndEmptyOnesAreFine) {
  const std::vector<std::uint16_t> lengths = {5, 6};
  const std::vector<std::uint32_t> indices = {1, 1, 0};
  EXPECT_EQ(tokens_of(lengths, indices, {0}), Tokens{});
  EXPECT_EQ(tokens_of(lengths, indices, {0, 0, 0}), (Tokens{0, 0}));
  EXPECT_EQ(tokens_of(lengths, indices, {0, 2, 2, 3}), (Tokens{12, 0, 5}));
}

TEST(StatsTokensTest, SaysWhichValueIsWrong) {
  const std::vector<std::uint16_t> lengths = {5, 6};
  const std::vector<std::uint64_t> indices = {1, 1, 0, 2, std::uint64_t{1} << 63};
  const auto expect_rejected = [&](const std::string& message, const Offsets& offsets) {
    try {
      static_cast<void>(tokens_of(lengths, indices, offsets));
      FAIL() << "accepted, instead of: " << message;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), message);
    }
  };
  expect_rejected("`offsets` must have at least 1 entry, but has 0.", {});
  expect_rejected("`offsets[0]` must be at least 0, but is -1.", {-1, 2});
  expect_rejected("`offsets[2]` must be at least 3, but is 2.", {0, 3, 2});
  expect_rejected("`offsets[1]` must be at most the number of indices, 5, but is 6.", {0, 6});
  expect_rejected("`indices[3]` must be in [0, 2), but is 2.", {0, 3, 4});
  expect_rejected("`indices[4]` must be in [0, 2), but is 9223372036854775808.", {4, 5});
  const std::vector<std::int64_t> negative = {0, -1};
  EXPECT_THROW(static_cast<void>(tokens_of(lengths, negative, {0, 2})), std::invalid_argument);
}

}  // namespace
}  // namespace evenstride
