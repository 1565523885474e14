// Padded rows against their definition, place by place.
#include "collate/pad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ragged.h"

namespace evenstride {
namespace {

using testing::Guarded;
using testing::kDTypes;
using testing::Random;
using testing::read_bits;
using testing::write_bits;

enum class Kind : std::uint8_t { kValues, kMask, kPositions };

// A row to pad, in memory that ends where it ends.
struct Problem {
  Kind kind;
  DType from;
  DType to;
  std::uint32_t length;
  std::uint32_t width;
  std::uint32_t prompt;
  bool pads_left;
  std::uint64_t padding;
  std::vector<std::byte> memory;
  std::size_t misalignment;

  [[nodiscard]] const std::byte* values() const { return memory.data() + misalignment; }
  [[nodiscard]] PadRow row(std::byte* out) const {
    return {.values = values(),
            .out = out,
            .length = length,
            .width = width,
            .prompt = prompt,
            .padding = padding,
            .pads_left = pads_left};
  }
};

// None as often as some.
std::uint32_t random_prompt(Random& random, std::uint32_t length) {
  return random.one_in(2) ? 0 : static_cast<std::uint32_t>(random.below(length + 1));
}

Problem random_problem(Random& random, Kind kind, DType from, DType to, std::uint32_t length,
                       std::uint32_t width) {
  Problem problem{.kind = kind,
                  .from = from,
                  .to = to,
                  .length = length,
                  .width = width,
                  .prompt = random_prompt(random, length),
                  .pads_left = random.one_in(2),
                  .padding = random.next(),
                  .memory = {},
                  .misalignment = random.below(17)};
  problem.memory.resize(problem.misalignment + length * size_of(from));
  for (std::byte& byte : problem.memory) {
    byte = static_cast<std::byte>(random.next());
  }
  return problem;
}

// The comments in pad.h, transcribed: the bits of the value at a place of the row.
std::uint64_t expected_at(const Problem& problem, std::uint32_t place) {
  const std::uint32_t first = problem.pads_left ? problem.width - problem.length : 0;
  if (place < first + problem.prompt || place >= first + problem.length) {
    return problem.padding;
  }
  switch (problem.kind) {
    case Kind::kValues:
      return read_bits(problem.values() + (place - first) * size_of(problem.from), problem.from);
    case Kind::kMask:
      return 1;
    default:
      return place - first;
  }
}

std::vector<std::byte> expected_row(const Problem& problem) {
  std::vector<std::byte> out(problem.width * size_of(problem.to));
  for (std::uint32_t place = 0; place < problem.width; ++place) {
    write_bits(out.data() + place * size_of(problem.to), problem.to, expected_at(problem, place));
  }
  return out;
}

Pad pad_of(const Problem& problem) {
  switch (problem.kind) {
    case Kind::kValues:
      return pad_values_of(problem.from, problem.to);
    case Kind::kMask:
      return pad_mask_of(problem.to);
    default:
      return pad_positions_of(problem.to);
  }
}

void expect_padded(const Problem& problem, std::size_t misalignment) {
  Guarded out(problem.width * size_of(problem.to), misalignment * size_of(problem.to));
  pad_row(pad_of(problem), problem.row(out.data()));
  const std::vector<std::byte> expected = expected_row(problem);
  ASSERT_TRUE(std::ranges::equal(out.bytes(), expected))
      << name_of(problem.from) << " to " << name_of(problem.to) << ", length " << problem.length
      << ", width " << problem.width << (problem.pads_left ? ", left" : "");
  ASSERT_TRUE(out.is_intact());
}

TEST(PadRow, EveryLengthOfEverySmallWidthMatchesItsDefinition) {
  Random random(1);
  for (std::uint32_t width = 0; width <= 40; ++width) {
    for (std::uint32_t length = 0; length <= width; ++length) {
      for (const auto& [from, to] :
           {std::pair{DType::kUInt16, DType::kInt64}, std::pair{DType::kInt32, DType::kInt64},
            std::pair{DType::kInt8, DType::kInt16}, std::pair{DType::kBFloat16, DType::kBFloat16},
            std::pair{DType::kBool, DType::kBool}}) {
        for (const Kind kind : {Kind::kValues, Kind::kMask, Kind::kPositions}) {
          expect_padded(random_problem(random, kind, from, to, length, width), random.below(9));
        }
      }
    }
  }
}

TEST(PadRow, EveryPairOfTypesMatchesItsDefinition) {
  Random random(2);
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (int run = 0; is_convertible(from, to) && run < 60; ++run) {
        const auto width = static_cast<std::uint32_t>(random.below(run < 50 ? 150 : 3000));
        const auto length = static_cast<std::uint32_t>(random.below(width + 1));
        const auto kind = is_float(to) ? Kind::kValues : static_cast<Kind>(random.below(3));
        expect_padded(random_problem(random, kind, from, to, length, width), random.below(9));
      }
    }
  }
}

TEST(PadRow, APaddingValueKeepsAllItsBits) {
  for (const std::uint64_t padding :
       {(std::uint64_t{1} << 53) + 1, ~std::uint64_t{0} - 99, std::uint64_t{1} << 63}) {
    const std::byte value{7};
    std::vector<std::uint64_t> out(3);
    pad_row(pad_values_of(DType::kUInt8, DType::kInt64),
            {.values = &value,
             .out = reinterpret_cast<std::byte*>(out.data()),
             .length = 1,
             .width = 3,
             .prompt = 0,
             .padding = padding,
             .pads_left = true});
    EXPECT_EQ(out, (std::vector<std::uint64_t>{padding, padding, 7}));
  }
}

// Cuts [0, width) at random into tiles, in random order.
std::vector<std::pair<std::uint32_t, std::uint32_t>> random_tiles(Random& random,
                                                                  std::uint32_t width) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> tiles;
  for (std::uint32_t begin = 0; begin < width;) {
    const auto end = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(width, begin + random.between(1, width)));
    tiles.emplace_back(begin, end);
    begin = end;
  }
  for (std::size_t i = tiles.size(); i > 1; --i) {
    std::swap(tiles[i - 1], tiles[random.below(i)]);
  }
  return tiles;
}

// A body of one kind, for a number of lanes: what a device runs.
template <class Source, class Out, std::uint32_t kLanes>
void expect_lanes_write_each_place_once(Random& random, const Problem& problem) {
  // Two rows that differ everywhere: a place was written where either is no longer what it was.
  const std::size_t bytes = problem.width * sizeof(Out);
  const std::size_t misalignment = sizeof(Out) * random.below(9);
  Guarded zeros(bytes, misalignment);
  Guarded ones(bytes, misalignment);
  std::vector<std::uint32_t> writes(problem.width);
  std::vector<std::byte> written(bytes);
  std::vector<std::uint32_t> lanes(kLanes);
  std::iota(lanes.begin(), lanes.end(), 0);
  for (const auto& [begin, end] : random_tiles(random, problem.width)) {
    for (std::size_t i = kLanes; i > 1; --i) {
      std::swap(lanes[i - 1], lanes[random.below(i)]);
    }
    for (const std::uint32_t lane : lanes) {
      std::fill_n(zeros.data(), bytes, std::byte{0});
      std::fill_n(ones.data(), bytes, std::byte{0xFF});
      pad<Source, Out, kLanes>(problem.row(zeros.data()), begin, end, lane);
      pad<Source, Out, kLanes>(problem.row(ones.data()), begin, end, lane);
      for (std::uint32_t place = 0; place < problem.width; ++place) {
        const std::size_t at = place * sizeof(Out);
        const Out of_zeros = load<Out>(zeros.data() + at);
        if (of_zeros != 0 || load<Out>(ones.data() + at) != std::numeric_limits<Out>::max()) {
          ++writes[place];
          write_bits(written.data() + at, problem.to, of_zeros);
          ASSERT_TRUE(begin <= place && place < end && (place - begin) % kLanes == lane);
        }
      }
    }
  }
  EXPECT_EQ(std::ranges::count(writes, 1), problem.width);
  EXPECT_EQ(written, expected_row(problem));
  EXPECT_TRUE(zeros.is_intact() && ones.is_intact());
}

template <class Source, class Out>
void expect_every_number_of_lanes(Random& random, Kind kind, DType from, DType to) {
  for (int run = 0; run < 6; ++run) {
    const auto width = static_cast<std::uint32_t>(random.below(100));
    const auto length = static_cast<std::uint32_t>(random.below(width + 1));
    const Problem problem = random_problem(random, kind, from, to, length, width);
    expect_lanes_write_each_place_once<Source, Out, 1>(random, problem);
    expect_lanes_write_each_place_once<Source, Out, 2>(random, problem);
    expect_lanes_write_each_place_once<Source, Out, 3>(random, problem);
    expect_lanes_write_each_place_once<Source, Out, 4>(random, problem);
    expect_lanes_write_each_place_once<Source, Out, 8>(random, problem);
    expect_lanes_write_each_place_once<Source, Out, 32>(random, problem);
  }
}

template <class Out>
void expect_every_source(Random& random, DType to) {
  const auto values = [&]<class Wire>(Wire, DType from) {
    expect_every_number_of_lanes<ValuesOf<Wire>, Out>(random, Kind::kValues, from, to);
  };
  values(std::uint8_t{}, DType::kUInt8);
  values(std::uint16_t{}, DType::kUInt16);
  values(std::uint32_t{}, DType::kUInt32);
  values(std::uint64_t{}, DType::kUInt64);
  values(std::int8_t{}, DType::kInt8);
  values(std::int16_t{}, DType::kInt16);
  values(std::int32_t{}, DType::kInt32);
  expect_every_number_of_lanes<MaskOf, Out>(random, Kind::kMask, DType::kUInt8, to);
  expect_every_number_of_lanes<PositionsOf, Out>(random, Kind::kPositions, DType::kUInt8, to);
}

TEST(Pad, LanesAndTilesInAnyOrderWriteEachPlaceOnce) {
  Random random(3);
  expect_every_source<std::uint8_t>(random, DType::kUInt8);
  expect_every_source<std::uint16_t>(random, DType::kUInt16);
  expect_every_source<std::uint32_t>(random, DType::kUInt32);
  expect_every_source<std::uint64_t>(random, DType::kUInt64);
}

// Returns whether bits that read_bits returned are a number of the type `to`.
bool fits(std::uint64_t bits, DType from, DType to) {
  if (from == DType::kBool || to == DType::kBool) {
    return bits <= 1;
  }
  std::vector<std::byte> memory(8);
  write_bits(memory.data(), to, bits);
  const std::uint64_t after = read_bits(memory.data(), to);
  const bool was_negative = is_signed(from) && bits >> 63 == 1;
  const bool is_negative = is_signed(to) && after >> 63 == 1;
  return after == bits && was_negative == is_negative;
}

TEST(FirstMisfit, FindsTheFirstValueThatDoesNotFit) {
  Random random(4);
  const std::vector<std::uint64_t> extremes = {0,
                                               1,
                                               2,
                                               127,
                                               128,
                                               255,
                                               256,
                                               32767,
                                               32768,
                                               65535,
                                               65536,
                                               0x7FFF'FFFF,
                                               0x8000'0000,
                                               0xFFFF'FFFF,
                                               0x1'0000'0000,
                                               ~std::uint64_t{0} >> 1};
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      if (is_float(from) || is_float(to)) {
        continue;
      }
      for (int run = 0; run < 150; ++run) {
        const std::size_t length = random.below(run < 100 ? 20 : 800);
        std::vector<std::byte> memory(1 + length * size_of(from));
        std::uint64_t expected = length;
        for (std::size_t i = 0; i < length; ++i) {
          std::uint64_t bits = random.below(2);
          if (random.one_in(length)) {
            bits = extremes[random.below(extremes.size())];
            bits = random.one_in(2) ? bits : ~bits + random.below(2);
          }
          std::byte* const value = memory.data() + 1 + i * size_of(from);
          write_bits(value, from, bits);
          if (expected == length && !fits(read_bits(value, from), from, to)) {
            expected = i;
          }
        }
        ASSERT_EQ(first_misfit(memory.data() + 1, length, from, to), expected)
            << name_of(from) << " to " << name_of(to) << ", " << length;
        ASSERT_TRUE(expected == length || !always_fits(from, to));
      }
    }
  }
}

TEST(IntegerAt, PrintsTheEndsOfEveryType) {
  const auto text = [](DType dtype, std::uint64_t bits) {
    std::vector<std::byte> memory(1 + 2 * size_of(dtype));
    write_bits(memory.data() + 1 + size_of(dtype), dtype, bits);
    return integer_at(memory.data() + 1, 1, dtype);
  };
  const std::uint64_t top = std::uint64_t{1} << 63;
  EXPECT_EQ(text(DType::kBool, 1), "1");
  EXPECT_EQ(text(DType::kInt8, 128), "-128");
  EXPECT_EQ(text(DType::kUInt8, 255), "255");
  EXPECT_EQ(text(DType::kInt16, 0x8000), "-32768");
  EXPECT_EQ(text(DType::kUInt16, 65535), "65535");
  EXPECT_EQ(text(DType::kInt32, 0x8000'0000), "-2147483648");
  EXPECT_EQ(text(DType::kUInt32, 0xFFFF'FFFF), "4294967295");
  EXPECT_EQ(text(DType::kInt64, top), "-9223372036854775808");
  EXPECT_EQ(text(DType::kUInt64, top), "9223372036854775808");
}

}  // namespace
}  // namespace evenstride
