// Slabs: which outputs share their rows, where tables and rows lie, and what is refused.
#include "cuda/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "batches.h"
#include "collate/collate.h"
#include "cuda/pad_tile.h"
#include "ragged.h"

namespace evenstride {
namespace {

using testing::expect_error;
using testing::Field;
using testing::Guarded;
using testing::kUntouched;
using testing::Magnitude;
using testing::make_field;
using testing::one_chunk;
using testing::packed;
using testing::Random;
using testing::RandomCollator;
using testing::Samples;
using Source = Output::Source;

Output output_of(const Field& field, Source source = Source::kValues, DType dtype = DType::kInt64) {
  return {.key = "labels", .source = source, .column = field.column, .dtype = dtype};
}

// A batch of samples on its way, and its slab.
struct Staged {
  Staged(std::vector<Output> outputs, const Samples& samples, std::uint64_t multiple = 1)
      : staging(std::make_shared<const Collator>(std::move(outputs), std::nullopt, multiple)) {
    staging.collator().look_up(samples, rows);
    staging.lay_out(rows, batch);
    slab.emplace(batch.bytes);
    std::fill_n(slab->data(), batch.bytes, kUntouched);
    staging.write(rows, batch, slab->data());
    EXPECT_TRUE(slab->is_intact());
  }

  [[nodiscard]] std::byte* at(std::uint32_t place) {
    return slab->data() + std::uint64_t{place} * kStagingAlignment;
  }
  [[nodiscard]] StagedRow row(std::size_t group, std::size_t i) {
    StagedRow row;
    std::memcpy(&row, at(batch.pad.groups[group].rows) + i * sizeof(row), sizeof(row));
    return row;
  }

  Staging staging;
  BatchRows rows;
  StagedBatch batch;
  std::optional<Guarded> slab;
};

TEST(Staging, OutputsOfTheSameRowsShareThem) {
  const Field ids = one_chunk(DType::kInt32, {{1, 2, 3}, {4}});
  const Field labels = one_chunk(DType::kInt32, {{1}, {4}}, {}, false);
  std::vector<Output> outputs = {
      output_of(labels, Source::kLengths),  // No other output reads these rows.
      output_of(ids, Source::kMask),
      output_of(ids),
      output_of(ids, Source::kValues, DType::kInt32),
      output_of(ids),  // On the other side.
      output_of(ids),  // Of other rows.
      output_of(ids, Source::kLengths),
      output_of(ids, Source::kPositions)};
  outputs[1].pads_left = outputs[4].pads_left = true;
  outputs[5].max_length = 2;
  outputs[7].max_length = 2;
  const Staged staged(outputs, {0, 1});
  const PadBatch& pad = staged.batch.pad;
  std::vector<std::vector<std::uint64_t>> groups;
  for (const PadGroup& group : std::span(pad.groups).first(pad.num_groups)) {
    groups.emplace_back();
    for (std::uint32_t f = group.first_field; f < group.end_field; ++f) {
      // Named by the outputs that begin where the fields do.
      const auto& arrays = staged.batch.layout.arrays;
      const auto same = std::ranges::find(arrays, pad.fields[f].out, &Layout::Array::offset);
      groups.back().push_back(static_cast<std::uint64_t>(same - arrays.begin()));
    }
  }
  EXPECT_EQ(groups, (std::vector<std::vector<std::uint64_t>>{{2, 3, 1, 6}, {4}, {5, 7}, {0}}));
}

TEST(Staging, ValuesStandWhereTheirPlacesDo) {
  const Field::Rows rows{{1, 2, 3}, {}, {4, 5, 6, 7, 8, 9, 10, 11, 12}};
  const Field ids = one_chunk(DType::kUInt16, rows);
  for (const bool pads_left : {false, true}) {
    Output output = output_of(ids);
    output.pads_left = pads_left;
    Staged staged({output}, {0, 1, 2});
    // The table has 3 * 8 bytes. A row without values takes no place.
    EXPECT_EQ(staged.batch.table_bytes, 32U);
    // Six values come before those of the first row on the left, and twice nine before the last's.
    const std::size_t shifts[] = {pads_left ? 6U * 2 : 0U, 0U, 18U * 2 % 16};
    const std::uint32_t places[] = {2, pads_left ? 4U : 3U, pads_left ? 4U : 3U};
    EXPECT_EQ(staged.batch.bytes, (places[2] + 2) * 16);
    std::vector<bool> is_written(staged.batch.bytes);
    std::fill_n(is_written.begin(), 24, true);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const StagedRow row = staged.row(0, i);
      EXPECT_EQ(row.length, rows[i].size());
      EXPECT_EQ(row.place, places[i]);
      for (std::size_t k = 0; k < rows[i].size(); ++k) {
        const std::size_t byte = std::size_t{row.place} * 16 + shifts[i] + 2 * k;
        EXPECT_EQ(testing::read_bits(staged.slab->data() + byte, DType::kUInt16), rows[i][k]);
        is_written[byte] = is_written[byte + 1] = true;
      }
    }
    for (std::size_t byte = 0; byte < is_written.size(); ++byte) {
      EXPECT_TRUE(is_written[byte] || staged.slab->bytes()[byte] == kUntouched) << byte;
    }
  }
}

TEST(Staging, PromptsHaveATableOfTheirOwn) {
  const Field ids = one_chunk(DType::kUInt8, {{1, 2, 3}, {}, {4, 5, 6, 7}});
  const Field prompts = one_chunk(DType::kUInt8, {{2}, {1}, {200}}, {}, false);
  Output output = output_of(ids);
  output.prompt = prompts.column;
  output.start = 1;
  Staged staged({output_of(ids), output}, {2, 1, 0});
  EXPECT_EQ(staged.batch.pad.fields[0].prompts, PadField::kNoPrompt);
  std::vector<std::uint32_t> table(3);
  std::memcpy(table.data(), staged.at(staged.batch.pad.fields[1].prompts), 12);
  EXPECT_EQ(table, (std::vector<std::uint32_t>{3, 0, 1}));
}

TEST(Staging, RowsWhoseValuesNobodyTakesStayBehind) {
  const Field ids = one_chunk(DType::kInt64, {{1, 2, 3}, {4}});
  const Staged staged({output_of(ids, Source::kMask), output_of(ids, Source::kLengths)}, {0, 1});
  EXPECT_EQ(staged.batch.bytes, 2 * sizeof(StagedRow));
}

TEST(Staging, ABatchWithoutSamplesHasTilesAndNoBytes) {
  const Field ids = one_chunk(DType::kInt32, {{1, 2, 3}});
  const Staged staged({output_of(ids), output_of(ids, Source::kLengths)}, {});
  EXPECT_EQ(staged.batch.bytes, 0U);
  EXPECT_EQ(staged.batch.pad.num_rows, 0U);
  EXPECT_EQ(staged.batch.pad.num_groups, 1U);
  EXPECT_EQ(staged.batch.pad.groups[0].tiles, 1U);
}

TEST(Staging, AGroupHasTheTilesOfItsWidestOutput) {
  const auto tiles = [](std::size_t length, std::uint64_t multiple) {
    const Field ids = one_chunk(DType::kInt8, {std::vector<std::uint64_t>(length)});
    const Staged staged({output_of(ids, Source::kLengths), output_of(ids)}, {0}, multiple);
    return staged.batch.pad.groups[0].tiles;
  };
  EXPECT_EQ(tiles(0, 1), 1U);
  EXPECT_EQ(tiles(kTileValues, 1), 1U);
  EXPECT_EQ(tiles(kTileValues + 1, 1), 2U);
  EXPECT_EQ(tiles(1, 5 * kTileValues + 1), 6U);
}

TEST(Staging, MostBytesBoundsEveryBatch) {
  Random random(1);
  BatchRows rows;
  StagedBatch batch;
  for (int run = 0; run < 1500; ++run) {
    const RandomCollator made(random, {.magnitude = static_cast<Magnitude>(random.below(3)),
                                       .num_rows = random.between(1, 20)});
    const Staging staging(made.collator);
    const Samples samples = made.random_samples(random, 12);
    made.collator->look_up(samples, rows);
    staging.lay_out(rows, batch);
    std::uint64_t widest = 1;
    for (const Layout::Array& array : batch.layout.arrays) {
      widest = std::max(widest, array.width);
    }
    const std::uint64_t most = staging.most_bytes(samples.size(), samples.size() * widest);
    ASSERT_LE(batch.bytes, most);
    ASSERT_LE(most, staging.most_bytes(samples.size() + 1, (samples.size() + 1) * widest));
  }
}

TEST(Staging, MostBytesIsReachedByARowThatFitsWorst) {
  // 15 bytes of the second row's first place come before its 2 values, and 15 after.
  const Field ids = one_chunk(DType::kUInt8, {std::vector<std::uint64_t>(15), {1, 2}});
  const Staged staged({output_of(ids)}, {0, 1});
  EXPECT_EQ(staged.batch.bytes, 16U + 16U + 32U);
  EXPECT_EQ(staged.staging.most_bytes(2, 17), 16U + 17U + 2 * 30U);
}

TEST(Staging, HasAtMost64Outputs) {
  const Field ids = one_chunk(DType::kInt32, {{1}});
  const auto make = [&](std::size_t num_outputs) {
    return Staging(std::make_shared<const Collator>(
        std::vector<Output>(num_outputs, output_of(ids)), std::nullopt, 1));
  };
  EXPECT_NO_THROW(make(64));
  expect_error<std::invalid_argument>(
      [&] { make(65); }, "A batch must have at most 64 keys to be made on a device, but has 65.");
}

TEST(Staging, WritesNothingWhereAValueDoesNotFit) {
  const Field ids = one_chunk(DType::kInt32, {{1}, {2, 300}});
  const Staging staging(std::make_shared<const Collator>(
      std::vector<Output>{output_of(ids), output_of(ids, Source::kValues, DType::kInt8)},
      std::nullopt, 1));
  BatchRows rows;
  StagedBatch batch;
  staging.collator().look_up(Samples{0, 1}, rows);
  staging.lay_out(rows, batch);
  Guarded slab(batch.bytes);
  std::fill_n(slab.data(), batch.bytes, kUntouched);
  expect_error<std::range_error>([&] { staging.write(rows, batch, slab.data()); },
                                 "`ids` of `corpus`, row 1: holds 300, which does not fit into "
                                 "int8, the type of `labels`.");
  EXPECT_TRUE(std::ranges::all_of(slab.bytes(), [](std::byte b) { return b == kUntouched; }));
}

// A field of one row of this length; its values are never read.
Field unreadable_field(std::uint64_t length) {
  static const std::byte kValue{};
  Field field = make_field(DType::kInt64, {});
  field.column->append({.values = &kValue,
                        .num_cells = length,
                        .num_rows = 1,
                        .rows = Chunk::Rows::kOffsets,
                        .bounds = packed(field, {0, length}, PackedIntegers::Type::kUInt64)});
  return field;
}

StagedBatch laid_out(const std::vector<Output>& outputs, const Samples& samples) {
  const Staging staging(std::make_shared<const Collator>(outputs, std::nullopt, 1));
  BatchRows rows;
  StagedBatch batch;
  staging.collator().look_up(samples, rows);
  staging.lay_out(rows, batch);
  return batch;
}

TEST(Staging, ASlabHasFewerThan2To36Bytes) {
  // 2^34 - 16 bytes a row: with the table of 4 rows, 32 bytes less than 2^36.
  const Field ids = unreadable_field((std::uint64_t{1} << 31) - 2);
  const Output output = output_of(ids);
  const std::uint64_t bytes = (std::uint64_t{1} << 36) - 32;
  EXPECT_EQ(laid_out({output}, Samples(4)).bytes, bytes);
  const Field more = one_chunk(DType::kInt64, {{1, 2}}, {2});
  const std::vector<Output> outputs{output, output_of(more)};
  expect_error<std::length_error>([&] { laid_out(outputs, Samples(4)); },
                                  "The rows of a batch must have fewer than 2**36 bytes to be made "
                                  "on a device, but have at least 68719476736.");
}

TEST(Staging, ARowHasFewerThan2To32Tokens) {
  const std::uint64_t most = (std::uint64_t{1} << 32) - 1;
  const Field longest = unreadable_field(most);
  EXPECT_EQ(laid_out({output_of(longest, Source::kLengths)}, {0}).bytes, 16U);
  const Field longer = unreadable_field(most + 1);
  expect_error<std::length_error>(
      [&] { laid_out({output_of(longer, Source::kLengths)}, {0}); },
      "`labels` must have rows of fewer than 2**32 tokens to be made on a device, but would have "
      "rows of 4294967296.");
}

}  // namespace
}  // namespace evenstride
