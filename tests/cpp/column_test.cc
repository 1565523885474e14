// Columns: where rows lie, and what is refused.
#include "collate/column.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ragged.h"

namespace evenstride {
namespace {

using testing::append_chunk;
using testing::append_chunks;
using testing::expect_error;
using testing::Field;
using testing::kDTypes;
using testing::packed;
using testing::Random;
using testing::read_bits;
using Type = PackedIntegers::Type;

constexpr Type kTypes[] = {Type::kInt32, Type::kUInt32, Type::kInt64, Type::kUInt64};
constexpr std::uint64_t kTop = ~std::uint64_t{0};
constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;

Field empty_field(DType dtype, std::vector<std::uint64_t> cell_shape = {}, bool is_ragged = true) {
  Field field;
  field.dtype = dtype;
  field.cell_shape = cell_shape;
  field.is_ragged = is_ragged;
  field.column = std::make_shared<Column>("ids", "corpus", dtype, std::move(cell_shape), is_ragged);
  return field;
}

Field random_field(Random& random, std::size_t size) {
  const auto shapes = std::vector<std::vector<std::uint64_t>>{{}, {}, {1}, {3}, {2, 2}};
  Field field = empty_field(kDTypes[random.below(std::size(kDTypes))],
                            shapes[random.below(shapes.size())], !random.one_in(4));
  for (std::size_t row = 0; row < size; ++row) {
    const std::uint64_t length = field.is_ragged ? random.below(9) : 1;
    field.rows.emplace_back(length * field.cell_values());
    for (std::uint64_t& bits : field.rows.back()) {
      std::byte memory[8] = {};
      testing::write_bits(memory, field.dtype, random.next());
      bits = read_bits(memory, field.dtype);
    }
  }
  return field;
}

void expect_rows(const Field& field) {
  const Column& column = *field.column;
  ASSERT_EQ(column.num_rows(), field.rows.size());
  std::uint64_t longest = 0;
  std::vector<std::int64_t> expected;
  for (std::size_t i = 0; i < field.rows.size(); ++i) {
    const Row row = column.row(i);
    longest = std::max(longest, field.length(i));
    expected.push_back(static_cast<std::int64_t>(field.length(i)));
    ASSERT_EQ(row.length, field.length(i)) << "row " << i;
    for (std::size_t k = 0; k < field.rows[i].size(); ++k) {
      ASSERT_EQ(read_bits(row.values + k * size_of(field.dtype), field.dtype), field.rows[i][k])
          << "row " << i;
    }
  }
  EXPECT_EQ(column.longest(), longest);
  std::vector<std::int64_t> wide(field.rows.size());
  std::vector<std::int32_t> narrow(field.rows.size());
  column.lengths(std::span(wide));
  column.lengths(std::span(narrow));
  EXPECT_EQ(wide, expected);
  EXPECT_TRUE(std::ranges::equal(narrow, expected));
}

TEST(PackedIntegers, AreReadAtAnyAddressWithTheirSign) {
  Field field;
  for (const Type type : kTypes) {
    const bool is_narrow = type == Type::kInt32 || type == Type::kUInt32;
    const bool is_signed = type == Type::kInt32 || type == Type::kInt64;
    const PackedIntegers integers = packed(field, {0, 7, kTop}, type);
    EXPECT_EQ(integers.size(), 3U);
    EXPECT_EQ(integers[1], 7U);
    EXPECT_EQ(integers[2], type == Type::kUInt32 ? 0xFFFF'FFFF : kTop);
    EXPECT_EQ(integers.text(2), is_signed   ? "-1"
                                : is_narrow ? "4294967295"
                                            : "18446744073709551615");
    EXPECT_EQ(integers.address(2) - integers.memory(), is_narrow ? 8 : 16);
  }
}

TEST(Column, RowsOfRandomChunksLieWhereTheyWerePut) {
  Random random(1);
  for (int run = 0; run < 400; ++run) {
    Field field = random_field(random, random.below(40));
    append_chunks(field, random);
    expect_rows(field);
  }
}

TEST(Column, ChunksOfOneSizeButForTheLastAndChunksOfAnySizeGiveTheSameRows) {
  Random random(2);
  for (const std::size_t size : {1U, 2U, 7U, 50U}) {
    for (std::size_t rows = 0; rows < 60; ++rows) {
      Field field = random_field(random, rows);
      const auto kind = field.is_ragged ? Chunk::Rows::kOffsets : Chunk::Rows::kSingle;
      for (std::size_t row = 0; row < rows; row += size) {
        append_chunk(field, row, std::min(rows, row + size), kind, Type::kUInt32);
      }
      expect_rows(field);
    }
  }
  // Rows that a guess by the size of the first chunk puts into a chunk before or after theirs.
  for (const auto& sizes : {std::vector<std::size_t>{1, 9, 2}, {9, 1, 1, 1}, {0, 3, 0, 0, 5, 0}}) {
    Field field = random_field(random, std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    const auto kind = field.is_ragged ? Chunk::Rows::kOffsets : Chunk::Rows::kSingle;
    std::size_t row = 0;
    for (const std::size_t size : sizes) {
      append_chunk(field, row, row + size, kind, Type::kInt64);
      row += size;
    }
    expect_rows(field);
  }
}

TEST(Column, AFilesSequencesAreRangesInBytes) {
  // Two documents of int16, and pointers as a file has them: in bytes, in any order, overlapping.
  const std::vector<std::int16_t> values = {10, 11, 12, 13, 14};
  Field field = empty_field(DType::kInt16);
  field.column->append({.values = reinterpret_cast<const std::byte*>(values.data()),
                        .num_cells = 5,
                        .num_rows = 4,
                        .rows = Chunk::Rows::kRanges,
                        .bounds = packed(field, {6, 0, 10, 2}, Type::kInt64),
                        .bounds_lengths = packed(field, {2, 3, 0, 4}, Type::kInt32),
                        .start_bytes = 1});
  field.rows = {{13, 14}, {10, 11, 12}, {}, {11, 12, 13, 14}};
  expect_rows(field);
}

TEST(Column, OffsetsNeedNeitherBeginAtZeroNorEndAtTheLastValue) {
  const std::vector<std::uint8_t> values = {1, 2, 3, 4};
  Field field = empty_field(DType::kUInt8);
  field.column->append({.values = reinterpret_cast<const std::byte*>(values.data()),
                        .num_cells = 4,
                        .num_rows = 2,
                        .rows = Chunk::Rows::kOffsets,
                        .bounds = packed(field, {1, 1, 3}, Type::kUInt64)});
  field.rows = {{}, {2, 3}};
  expect_rows(field);
}

TEST(Column, DescribesItselfWithItsOriginIfItHasOne) {
  const Column column("ids", "corpus.idx", DType::kInt16, {2, 3}, true);
  EXPECT_EQ(column.described(), "`ids` of `corpus.idx`");
  EXPECT_EQ(Column("ids", "", DType::kInt16, {}, false).described(), "`ids`");
  EXPECT_EQ(column.name(), "ids");
  EXPECT_EQ(column.dtype(), DType::kInt16);
  EXPECT_EQ(column.cell_shape(), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(column.cell_values(), 6U);
  EXPECT_EQ(column.cell_bytes(), 12U);
  EXPECT_TRUE(column.is_ragged());
  EXPECT_EQ(column.num_rows(), 0U);
  EXPECT_EQ(column.longest(), 0U);
}

TEST(Column, ACellHasAValueAndFewerThan2To31Bytes) {
  const auto make = [](const std::vector<std::uint64_t>& shape) {
    return [shape] { Column("x", "", DType::kInt16, shape, true); };
  };
  const auto sentence = [](const std::string& size) {
    return "`x` must have cells of 1 value to 2**31 - 1 bytes, but one of its dimensions is " +
           size + ".";
  };
  expect_error<std::invalid_argument>(make({3, 0}), sentence("0"));
  expect_error<std::invalid_argument>(make({kTop}), sentence("18446744073709551615"));
  expect_error<std::invalid_argument>(make({0x4000'0000}), sentence("1073741824"));
  expect_error<std::invalid_argument>(make({2, 0x2000'0000}), sentence("536870912"));
  EXPECT_EQ(Column("x", "", DType::kInt16, {0x3FFF'FFFF}, true).cell_bytes(), 0x7FFF'FFFEU);
}

struct Offsets {
  std::vector<std::uint64_t> values;
  Type type;
};

// Appends a chunk of four cells between these offsets, after a row that is right.
void append_offsets(const Offsets& offsets) {
  static const std::vector<std::byte> kMemory(4 * sizeof(std::int64_t));
  Field field = empty_field(DType::kInt64);
  for (const Offsets& bounds : {Offsets{{0, 4}, Type::kInt32}, offsets}) {
    field.column->append({.values = kMemory.data(),
                          .num_cells = 4,
                          .num_rows = bounds.values.size() - 1,
                          .rows = Chunk::Rows::kOffsets,
                          .bounds = packed(field, bounds.values, bounds.type)});
  }
}

TEST(Column, SaysWhichOffsetIsWrong) {
  const auto expect_fault = [](const Offsets& offsets, const std::string& fault) {
    expect_error<std::invalid_argument>([&] { append_offsets(offsets); },
                                        "`ids` of `corpus`, row " + fault + ".");
  };
  const std::string there_are = ", outside [0, 4], the values that there are";
  for (const Type type : kTypes) {
    EXPECT_NO_THROW(append_offsets({{4, 4, 4}, type}));
    EXPECT_NO_THROW(append_offsets({{0}, type}));
    expect_fault({{5}, type}, "1: begins at 5" + there_are);
    expect_fault({{5, 5}, type}, "1: begins at 5" + there_are);
    expect_fault({{0, 2, 1, 4}, type}, "2: ends at 1, before its begin at 2");
    expect_fault({{0, 2, 4, 5}, type}, "3: ends at 5" + there_are);
    expect_fault({{0, 9, 3, 7}, type}, "1: ends at 9" + there_are);
    expect_error<std::invalid_argument>(
        [&] { append_offsets({{}, type}); },
        "`ids` of `corpus` must have at least 1 offset, but has 0.");
  }
  for (const Type type : {Type::kInt32, Type::kInt64}) {
    expect_fault({{kTop, 3}, type}, "1: begins at -1" + there_are);
    expect_fault({{0, kTop - 1}, type}, "1: ends at -2" + there_are);
  }
  expect_fault({{0, 0xFFFF'FFFF}, Type::kUInt32}, "1: ends at 4294967295" + there_are);
  expect_fault({{0, kTop}, Type::kUInt64}, "1: ends at 18446744073709551615" + there_are);
  expect_fault({{0, kHalf}, Type::kInt64}, "1: ends at -9223372036854775808" + there_are);
  expect_fault({{0, kHalf - 1}, Type::kInt64}, "1: ends at 9223372036854775807" + there_are);
}

TEST(Column, ARefusedChunkLeavesTheColumnAsItWas) {
  Field field = empty_field(DType::kUInt8);
  field.rows = {{1, 2}, {3}};
  append_chunk(field, 0, 2, Chunk::Rows::kOffsets, Type::kInt64);
  Chunk chunk{.values = nullptr, .num_cells = 0, .num_rows = 1, .rows = Chunk::Rows::kOffsets};
  chunk.bounds = packed(field, {0, 1}, Type::kInt64);
  EXPECT_THROW(field.column->append(chunk), std::invalid_argument);
  expect_rows(field);
}

// Appends a range of four cells, after one that is right.
void append_range(std::uint64_t start, std::uint64_t length, std::uint64_t start_bytes,
                  DType dtype = DType::kInt32, Type type = Type::kUInt64) {
  static const std::vector<std::byte> kMemory(4 * sizeof(std::int32_t));
  Field field = empty_field(dtype);
  field.column->append({.values = kMemory.data(),
                        .num_cells = 4,
                        .num_rows = 2,
                        .rows = Chunk::Rows::kRanges,
                        .bounds = packed(field, {0, start}, type),
                        .bounds_lengths = packed(field, {1, length}, type),
                        .start_bytes = start_bytes});
}

TEST(Column, SaysWhichRangeIsWrong) {
  const auto expect_fault = [](auto append, const std::string& fault) {
    expect_error<std::invalid_argument>(append, "`ids` of `corpus`, row 1: " + fault + ".");
  };
  const std::string there_are = ", which is outside the 4 values that there are";
  EXPECT_NO_THROW(append_range(3, 1, 4));
  EXPECT_NO_THROW(append_range(12, 1, 1));
  EXPECT_NO_THROW(append_range(16, 0, 1));
  EXPECT_NO_THROW(append_range(1, 1, 8));
  expect_fault([] { append_range(0, 5, 4); },
               "has length 5, outside [0, 4], the values that there are");
  expect_fault([] { append_range(0, kTop, 4); },
               "has length 18446744073709551615, outside [0, 4], the values that there are");
  expect_fault([] { append_range(0, kTop, 4, DType::kInt32, Type::kInt64); },
               "has length -1, outside [0, 4], the values that there are");
  expect_fault([] { append_range(3, 2, 4); }, "begins at 3 and has length 2" + there_are);
  expect_fault([] { append_range(5, 0, 4); }, "begins at 5 and has length 0" + there_are);
  expect_fault([] { append_range(13, 1, 1); }, "begins at 13 and has length 1" + there_are);
  expect_fault([] { append_range(kTop, 1, 1, DType::kInt32, Type::kInt32); },
               "begins at -1 and has length 1" + there_are);
  expect_fault([] { append_range(10, 1, 1); },
               "begins at byte 10, which is no multiple of 4, the bytes of a value");
  expect_fault([] { append_range(3, 1, 2); },
               "begins at byte 6, which is no multiple of 4, the bytes of a value");
}

TEST(Column, RangesHaveAsManyStartsAsLengths) {
  Field field = empty_field(DType::kInt32);
  Chunk chunk{.values = nullptr, .num_cells = 0, .num_rows = 2, .rows = Chunk::Rows::kRanges};
  chunk.bounds = packed(field, {0, 0}, Type::kInt64);
  chunk.bounds_lengths = packed(field, {0, 0, 0}, Type::kInt64);
  chunk.start_bytes = 4;
  expect_error<std::invalid_argument>(
      [&] { field.column->append(chunk); },
      "`ids` of `corpus` must have as many starts as lengths, but has 2 and 3.");
}

TEST(Column, AStartHasAtLeastOneByte) {
  expect_error<std::invalid_argument>([] { append_range(0, 1, 0); },
                                      "`start_bytes` must be at least 1, but is 0.");
}

TEST(Column, RangesAtTheTopOfUInt64DoNotOverflow) {
  for (const std::uint64_t start : {kTop, kHalf, kTop / 4 + 1, kTop / 4 + 2}) {
    for (const std::uint64_t start_bytes : {std::uint64_t{4}, std::uint64_t{1} << 62, kTop}) {
      EXPECT_THROW(append_range(start, 0, start_bytes), std::invalid_argument);
      EXPECT_THROW(append_range(start, 1, start_bytes), std::invalid_argument);
    }
  }
}

TEST(Column, OffsetsAtTheTopOfInt64AreReadAsTheyAre) {
  // As many cells of one byte as offsets can tell; nothing is read but the bounds.
  Column column("ids", "", DType::kUInt8, {}, true);
  Field field;
  static const std::byte kValue{};
  column.append({.values = &kValue,
                 .num_cells = kHalf - 1,
                 .num_rows = 2,
                 .rows = Chunk::Rows::kOffsets,
                 .bounds = packed(field, {0, 0, kHalf - 1}, Type::kInt64)});
  EXPECT_EQ(column.longest(), kHalf - 1);
  EXPECT_EQ(column.row(1).length, kHalf - 1);
  std::vector<std::int64_t> lengths(2);
  column.lengths(std::span(lengths));
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{0, static_cast<std::int64_t>(kHalf - 1)}));
}

}  // namespace
}  // namespace evenstride
