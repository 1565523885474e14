// What a collator refuses: outputs that cannot be, samples that are not there, and values that do
// not fit.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collate/collate.h"
#include "ragged.h"

namespace evenstride {
namespace {

using testing::append_chunk;
using testing::expect_error;
using testing::Field;
using testing::packed;
using Samples = std::vector<std::int64_t>;
using Source = Output::Source;

constexpr std::uint64_t kMinusOne = ~std::uint64_t{0};

Field make_field(DType dtype, Field::Rows rows, const std::string& name = "ids") {
  Field field;
  field.dtype = dtype;
  field.rows = std::move(rows);
  field.column =
      std::make_shared<Column>(name, "corpus", dtype, std::vector<std::uint64_t>{}, true);
  append_chunk(field, 0, field.rows.size(), Chunk::Rows::kOffsets, PackedIntegers::Type::kInt64);
  return field;
}

Output output_of(const Field& field, DType dtype, Source source = Source::kValues) {
  return {.key = "labels", .source = source, .column = field.column, .dtype = dtype};
}

// Collates one batch; `rows` as for a collator.
void collate(const std::vector<Output>& outputs, const Samples& samples,
             std::optional<std::span<const std::int64_t>> rows = std::nullopt,
             int num_threads = 1) {
  const Collator collator(outputs, rows, 1);
  BatchRows batch;
  collator.look_up(samples, batch);
  std::vector<std::uint64_t> memory(batch.layout.bytes / sizeof(std::uint64_t));
  collator.write(batch, reinterpret_cast<std::byte*>(memory.data()), num_threads);
}

TEST(Collator, NeedsAKeyAndAMultiple) {
  const Field field = make_field(DType::kInt32, {{1}});
  const auto make = [&](std::uint64_t multiple) {
    return [&, multiple] { Collator({output_of(field, DType::kInt64)}, std::nullopt, multiple); };
  };
  expect_error<std::invalid_argument>([] { Collator({}, std::nullopt, 1); },
                                      "A batch must have at least 1 key, but has 0.");
  expect_error<std::invalid_argument>(make(0),
                                      "`pad_to_multiple_of` must be in [1, 2**31), but is 0.");
  expect_error<std::invalid_argument>(
      make(0x8000'0000), "`pad_to_multiple_of` must be in [1, 2**31), but is 2147483648.");
  EXPECT_NO_THROW(make(0x7FFF'FFFF)());
}

TEST(Collator, ColumnsHaveEquallyManyRows) {
  const Field two = make_field(DType::kInt32, {{1}, {2}});
  const Field one = make_field(DType::kInt32, {{1}}, "labels");
  expect_error<std::invalid_argument>(
      [&] { collate({output_of(two, DType::kInt64), output_of(one, DType::kInt64)}, {}); },
      "`labels` of `corpus` must have 2 rows, as many as `ids` of `corpus`, but has 1.");
}

TEST(Collator, SaysWhichTypeCannotBe) {
  const Field ids = make_field(DType::kInt32, {{1}});
  const Field weights = make_field(DType::kFloat32, {{1}});
  const auto call = [](const Field& field, DType dtype, Source source = Source::kValues) {
    return [&field, dtype, source] { collate({output_of(field, dtype, source)}, {0}); };
  };
  expect_error<std::invalid_argument>(call(ids, DType::kFloat32),
                                      "`labels` cannot be float32: `ids` of `corpus` holds int32, "
                                      "and only integers and bools become others of these.");
  expect_error<std::invalid_argument>(
      call(weights, DType::kFloat64),
      "`labels` cannot be float64: `ids` of `corpus` holds float32, and only integers and bools "
      "become others of these.");
  for (const Source source : {Source::kMask, Source::kPositions, Source::kLengths}) {
    expect_error<std::invalid_argument>(call(ids, DType::kBFloat16, source),
                                        "`labels` must be of integers or bools, but is bfloat16.");
    EXPECT_NO_THROW(call(weights, DType::kInt32, source)());
  }
}

TEST(Collator, RowsAreRowsOfTheColumns) {
  const Field field = make_field(DType::kInt32, {{1}, {2}});
  for (const std::int64_t row : {std::int64_t{2}, std::int64_t{-1}}) {
    const Samples rows = {0, 1, row};
    expect_error<std::invalid_argument>(
        [&] { collate({output_of(field, DType::kInt64)}, {}, rows); },
        "Sample 2 must be a row in [0, 2), but is row " + std::to_string(row) + ".");
  }
}

TEST(Collator, SaysWhichSampleIsNotThere) {
  const Field field = make_field(DType::kInt32, {{1}, {2}, {3}});
  const Samples rows = {2, 0};
  for (const std::int64_t sample :
       {std::int64_t{2}, std::int64_t{-3}, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()}) {
    expect_error<std::out_of_range>(
        [&] { collate({output_of(field, DType::kInt64)}, {-2, 1, sample}, rows); },
        "`indices[2]` must be in [-2, 2), but is " + std::to_string(sample) + ".");
  }
}

TEST(Collator, NamesTheRowAndTheValueThatDoesNotFit) {
  const auto expect_misfit = [](DType from, std::uint64_t value, DType to,
                                const std::string& text) {
    const Field field = make_field(from, {{1}, {0, 1, value, value}, {0}});
    const Samples rows = {2, 1};
    expect_error<std::range_error>([&] { collate({output_of(field, to)}, {0, 1}, rows); },
                                   "`ids` of `corpus`, row 1: holds " + text +
                                       ", which does not fit into " + std::string(name_of(to)) +
                                       ", the type of `labels`.");
    // What is cut off need not fit.
    Output output = output_of(field, to);
    output.max_length = 2;
    EXPECT_NO_THROW(collate({output}, {0, 1}, rows));
  };
  expect_misfit(DType::kInt64, 40000, DType::kInt16, "40000");
  expect_misfit(DType::kInt32, kMinusOne, DType::kUInt64, "-1");
  expect_misfit(DType::kUInt16, 2, DType::kBool, "2");
  expect_misfit(DType::kBool, 2, DType::kBool, "2");
  expect_misfit(DType::kBool, 255, DType::kInt64, "255");
  expect_misfit(DType::kUInt32, 0x8000'0000, DType::kInt32, "2147483648");
  expect_misfit(DType::kUInt64, std::uint64_t{1} << 63, DType::kInt64, "9223372036854775808");
  expect_misfit(DType::kInt64, std::uint64_t{1} << 63, DType::kInt32, "-9223372036854775808");
}

TEST(Collator, NamesTheRowWhosePositionsOrLengthDoNotFit) {
  const Field field = make_field(DType::kInt32, {{}, std::vector<std::uint64_t>(128), {1, 2, 3}});
  const auto call = [&](DType dtype, Source source, std::uint64_t max_length) {
    return [&field, dtype, source, max_length] {
      Output output = output_of(field, dtype, source);
      output.max_length = max_length;
      collate({output}, {0, 1, 2});
    };
  };
  EXPECT_NO_THROW(call(DType::kInt8, Source::kPositions, 128)());
  EXPECT_NO_THROW(call(DType::kInt8, Source::kLengths, 127)());
  EXPECT_NO_THROW(call(DType::kBool, Source::kPositions, 2)());
  EXPECT_NO_THROW(call(DType::kBool, Source::kLengths, 1)());
  EXPECT_NO_THROW(call(DType::kBool, Source::kMask, 128)());
  expect_error<std::range_error>(call(DType::kInt8, Source::kLengths, 128),
                                 "`ids` of `corpus`, row 1: has length 128, which does not fit "
                                 "into int8, the type of `labels`.");
  expect_error<std::range_error>(call(DType::kBool, Source::kPositions, 128),
                                 "`ids` of `corpus`, row 1: has position 127, which does not fit "
                                 "into bool, the type of `labels`.");
}

TEST(Collator, AMisfitThatAThreadFindsReachesTheCaller) {
  Field::Rows rows(200, std::vector<std::uint64_t>(9000, 1));
  rows[150][8999] = 300;
  const Field field = make_field(DType::kUInt16, std::move(rows));
  Samples samples;
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    samples.push_back(sample);
  }
  expect_error<std::range_error>(
      [&] {
        collate({output_of(field, DType::kInt64, Source::kMask), output_of(field, DType::kInt8)},
                samples, std::nullopt, 3);
      },
      "`ids` of `corpus`, row 150: holds 300, which does not fit into int8, the type of `labels`.");
}

// A column of one value, or several, a row.
Field prompts_field(DType dtype, Field::Rows rows, std::vector<std::uint64_t> cell_shape = {},
                    bool is_ragged = false) {
  Field field;
  field.dtype = dtype;
  field.cell_shape = cell_shape;
  field.is_ragged = is_ragged;
  field.rows = std::move(rows);
  field.column =
      std::make_shared<Column>("prompts", "corpus", dtype, std::move(cell_shape), is_ragged);
  append_chunk(field, 0, field.rows.size(),
               is_ragged ? Chunk::Rows::kOffsets : Chunk::Rows::kSingle,
               PackedIntegers::Type::kInt64);
  return field;
}

TEST(Collator, APromptIsOneIntegerARow) {
  const Field ids = make_field(DType::kInt32, {{1}, {2, 3}});
  const auto call = [&](const Field& prompts, Source source = Source::kValues) {
    return [&ids, &prompts, source] {
      Output output = output_of(ids, DType::kInt64, source);
      output.prompt = prompts.column;
      collate({output}, {0, 1});
    };
  };
  const auto sentence = [](const std::string& what) {
    return "The prompt of `labels` must be one integer a row, but `prompts` of `corpus` holds " +
           what + ".";
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    expect_error<std::invalid_argument>(call(prompts_field(dtype, {{0}, {0}})), sentence("floats"));
  }
  expect_error<std::invalid_argument>(call(prompts_field(DType::kBool, {{0}, {0}})),
                                      sentence("bools"));
  expect_error<std::invalid_argument>(call(prompts_field(DType::kInt8, {{0, 0}, {0, 0}}, {2})),
                                      sentence("several values a row"));
  expect_error<std::invalid_argument>(call(prompts_field(DType::kInt8, {{0}, {0}}, {}, true)),
                                      sentence("several values a row"));
  expect_error<std::invalid_argument>(
      call(prompts_field(DType::kInt8, {{0}})),
      "`prompts` of `corpus` must have 2 rows, as many as `ids` of `corpus`, but has 1.");
  const Field prompts = prompts_field(DType::kUInt8, {{0}, {255}});
  EXPECT_NO_THROW(call(prompts)());
  for (const Source source : {Source::kMask, Source::kPositions, Source::kLengths}) {
    expect_error<std::invalid_argument>(call(prompts, source),
                                        "`labels` must be of values to have a prompt.");
  }
}

TEST(Collator, NamesTheRowWhosePromptIsNegative) {
  const Field ids = make_field(DType::kInt32, {{1}, {2, 3}, {4}});
  for (const auto& [dtype, value] :
       {std::pair{DType::kInt8, -128}, std::pair{DType::kInt16, -1}, std::pair{DType::kInt32, -7},
        std::pair{DType::kInt64, -300}}) {
    const Field prompts = prompts_field(dtype, {{0}, {static_cast<std::uint64_t>(value)}, {1}});
    Output output = output_of(ids, DType::kInt64);
    output.prompt = prompts.column;
    const Samples rows = {2, 1, 0};
    EXPECT_NO_THROW(collate({output}, {0, 2}, rows));
    expect_error<std::range_error>(
        [&] { collate({output}, {0, 1}, rows); },
        "`prompts` of `corpus`, row 1: must be at least 0, the cells of a prompt, but is " +
            std::to_string(value) + ".");
  }
}

TEST(Collator, APromptHidesNoValueThatDoesNotFit) {
  const Field ids = make_field(DType::kInt32, {{1, 300, 2}});
  const Field prompts = prompts_field(DType::kInt32, {{2}});
  Output output = output_of(ids, DType::kInt8);
  output.prompt = prompts.column;
  const Collator collator({output}, std::nullopt, 1);
  BatchRows batch;
  collator.look_up(Samples{0}, batch);
  expect_error<std::range_error>(
      [&] { collator.check_fits(batch); },
      "`ids` of `corpus`, row 0: holds 300, which does not fit into int8, the type of `labels`.");
}

// A field of two rows, one of them empty and one of this length; its values are never read.
Field unreadable_field(std::uint64_t length, std::vector<std::uint64_t> cell_shape) {
  static const std::byte kValue{};
  Field field;
  field.column = std::make_shared<Column>("ids", "", DType::kUInt8, std::move(cell_shape), true);
  field.column->append({.values = &kValue,
                        .num_cells = length,
                        .num_rows = 2,
                        .rows = Chunk::Rows::kOffsets,
                        .bounds = packed(field, {0, 0, length}, PackedIntegers::Type::kUInt64)});
  return field;
}

Layout layout_of(const std::vector<Output>& outputs, std::span<const std::int64_t> samples) {
  const Collator collator(outputs, std::nullopt, 1);
  BatchRows batch;
  collator.look_up(samples, batch);
  return batch.layout;
}

TEST(Collator, ARowHasFewerThan2To31Values) {
  const auto call = [](std::uint64_t length, const std::vector<std::uint64_t>& cell_shape,
                       Source source) {
    return [=] {
      const Field field = unreadable_field(length, cell_shape);
      return layout_of({output_of(field, DType::kUInt8, source)}, Samples{1});
    };
  };
  const std::uint64_t longest = (std::uint64_t{1} << 31) - 1;
  const auto sentence = [](const std::string& values) {
    return "`labels` must have rows of fewer than 2**31 values, but would have rows of " + values +
           ".";
  };
  EXPECT_EQ(call(longest, {}, Source::kMask)().arrays[0].width, longest);
  EXPECT_EQ(call(longest / 4, {4}, Source::kValues)().arrays[0].width, longest / 4);
  EXPECT_EQ(call(longest / 4 + 1, {4}, Source::kMask)().arrays[0].width, longest / 4 + 1);
  EXPECT_EQ(call(longest + 1, {}, Source::kLengths)().arrays[0].width, 1U);
  expect_error<std::length_error>(call(longest + 1, {}, Source::kMask),
                                  sentence("2147483648 times 1"));
  expect_error<std::length_error>(call(longest / 4 + 1, {4}, Source::kValues),
                                  sentence("536870912 times 4"));
}

TEST(Collator, ABatchHasFewerThan2To28SamplesAnd2To62Bytes) {
  const Field field = unreadable_field((std::uint64_t{1} << 31) - 1, {});
  const std::int64_t sample = 1;
  // Refused before the second sample is read.
  const std::span<const std::int64_t> many(&sample, std::size_t{1} << 28);
  expect_error<std::length_error>(
      [&] { layout_of({output_of(field, DType::kInt64, Source::kMask)}, many); },
      "A batch must have fewer than 2**28 samples, but has 268435456.");
  const Samples samples(std::size_t{1} << 16, 1);
  std::vector<Output> outputs(4096, output_of(field, DType::kInt64, Source::kMask));
  EXPECT_LT(layout_of(outputs, samples).bytes, std::uint64_t{1} << 62);
  outputs.push_back(outputs.front());
  expect_error<std::length_error>([&] { layout_of(outputs, samples); },
                                  "A batch must have fewer than 2**62 bytes, but has "
                                  "4612811916186222592 up to `labels`.");
}

}  // namespace
}  // namespace evenstride
