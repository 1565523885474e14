// Padded rows against their definition, place by place.
#include "collate/pad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
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
