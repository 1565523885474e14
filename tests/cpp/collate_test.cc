// Batches against their definition, value by value; what is refused; and threads.
#include "collate/collate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ragged.h"

namespace evenstride {
namespace {

using testing::append_chunk;
using testing::append_chunks;
using testing::Field;
using testing::Guarded;
using testing::kDTypes;
using testing::Random;
using testing::read_bits;
using testing::write_bits;
using Samples = std::vector<std::int64_t>;
using Source = Output::Source;

constexpr std::byte kUntouched{0xCD};

Field make_field(DType dtype, Field::Rows rows, std::vector<std::uint64_t> cell_shape = {},
                 bool is_ragged = true) {
  Field field;
  field.dtype = dtype;
  field.cell_shape = cell_shape;
  field.is_ragged = is_ragged;
  field.rows = std::move(rows);
  field.column = std::make_shared<Column>("ids", "corpus", dtype, std::move(cell_shape), is_ragged);
  return field;
}

Field one_chunk(DType dtype, Field::Rows rows, std::vector<std::uint64_t> cell_shape = {}) {
  Field field = make_field(dtype, std::move(rows), std::move(cell_shape));
  append_chunk(field, 0, field.rows.size(), Chunk::Rows::kOffsets, PackedIntegers::Type::kInt64);
  return field;
}

Field random_field(Random& random, std::size_t num_rows, bool is_binary) {
  const std::vector<std::vector<std::uint64_t>> shapes = {{}, {}, {3}, {2, 2}};
  const DType dtype = is_binary ? kDTypes[random.below(9)] : kDTypes[1 + random.below(12)];
  Field field = make_field(dtype, {}, shapes[random.below(4)], !random.one_in(4));
  for (std::size_t row = 0; row < num_rows; ++row) {
    const std::uint64_t length = field.is_ragged ? random.below(20) : 1;
    field.rows.emplace_back(length * field.cell_values());
    for (std::uint64_t& bits : field.rows.back()) {
      std::byte memory[8] = {};
      write_bits(memory, dtype, is_binary ? random.below(2) : random.next());
      bits = read_bits(memory, dtype);
    }
  }
  append_chunks(field, random);
  return field;
}

// An output, and the field that its column was made of.
struct Made {
  Output output;
  const Field* field;
};

// Returns whether every value that an output of this source can have fits into the type.
bool can_be(const Field& field, bool is_binary, Source source, DType dtype) {
  if (source == Source::kValues) {
    return is_convertible(field.dtype, dtype) && (is_binary || always_fits(field.dtype, dtype));
  }
  return !is_float(dtype) && (dtype != DType::kBool || source == Source::kMask);
}

Made random_output(Random& random, const Field& field, bool is_binary) {
  Made made{.output = {.key = "out", .column = field.column}, .field = &field};
  Output& output = made.output;
  output.source = static_cast<Source>(random.below(4));
  output.dtype = kDTypes[random.below(13)];
  while (!can_be(field, is_binary, output.source, output.dtype)) {
    output.dtype = kDTypes[random.below(13)];
  }
  output.padding = random.next();
  output.pads_left = random.one_in(2);
  output.start = random.one_in(3) ? random.below(25) : 0;
  if (random.one_in(3)) {
    output.max_length = random.below(25);
  }
  return made;
}

// What collate.h says of one output of a batch, transcribed.
struct Expected {
  std::uint64_t width = 1;
  std::uint64_t truncated_samples = 0;
  std::uint64_t truncated_tokens = 0;
  std::vector<std::byte> bytes;
};

Expected expected_of(const Made& made, const std::vector<std::size_t>& numbers,
                     std::uint64_t multiple) {
  const Output& output = made.output;
  const std::uint64_t cell = made.field->cell_values();
  Expected expected;
  Field::Rows cut;
  std::uint64_t longest = 1;
  for (const std::size_t number : numbers) {
    std::vector<std::uint64_t> row = made.field->rows[number];
    if (made.field->is_ragged) {
      const std::uint64_t skipped = std::min<std::uint64_t>(output.start, row.size() / cell);
      row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(skipped * cell));
      if (row.size() / cell > output.max_length) {
        ++expected.truncated_samples;
        expected.truncated_tokens += row.size() / cell - output.max_length;
        row.resize(output.max_length * cell);
      }
    }
    longest = std::max(longest, row.size() / cell);
    cut.push_back(row);
  }
  const bool is_wide = made.field->is_ragged && output.source != Source::kLengths;
  while (is_wide && (expected.width < longest || expected.width % multiple != 0)) {
    ++expected.width;
  }
  const auto put = [&](std::uint64_t bits) {
    std::array<std::byte, 8> memory{};
    write_bits(memory.data(), output.dtype, bits);
    expected.bytes.insert(expected.bytes.end(), memory.begin(),
                          memory.begin() + static_cast<std::ptrdiff_t>(size_of(output.dtype)));
  };
  for (const std::vector<std::uint64_t>& row : cut) {
    const std::uint64_t length = row.size() / cell;
    if (output.source == Source::kLengths) {
      put(length);
      continue;
    }
    const std::uint64_t first = output.pads_left ? expected.width - length : 0;
    for (std::uint64_t place = 0; place < expected.width; ++place) {
      const bool is_token = first <= place && place < first + length;
      if (output.source == Source::kMask) {
        put(is_token ? 1 : 0);
      } else if (output.source == Source::kPositions) {
        put(is_token ? place - first : 0);
      } else {
        for (std::uint64_t k = 0; k < cell; ++k) {
          put(is_token ? row[(place - first) * cell + k] : output.padding);
        }
      }
    }
  }
  return expected;
}

void expect_batch(const Collator& collator, const std::vector<Made>& made, const Samples& samples,
                  const std::vector<std::size_t>& numbers, std::uint64_t multiple,
                  BatchRows& batch) {
  collator.look_up(samples, batch);
  const Layout& layout = batch.layout;
  ASSERT_EQ(layout.num_samples, samples.size());
  ASSERT_EQ(layout.arrays.size(), made.size());
  Guarded memory(layout.bytes);
  std::fill_n(memory.data(), layout.bytes, kUntouched);
  collator.write(batch, memory.data());
  ASSERT_TRUE(memory.is_intact());
  std::vector<std::byte> all(layout.bytes, kUntouched);
  std::uint64_t end = 0;
  std::uint64_t widest = 1;
  for (std::size_t o = 0; o < made.size(); ++o) {
    const Expected expected = expected_of(made[o], numbers, multiple);
    const Layout::Array& array = layout.arrays[o];
    ASSERT_EQ(array.width, expected.width) << o;
    ASSERT_EQ(array.truncated_samples, expected.truncated_samples) << o;
    ASSERT_EQ(array.truncated_tokens, expected.truncated_tokens) << o;
    ASSERT_EQ(array.offset % 64, 0U);
    ASSERT_GE(array.offset, end);
    end = array.offset + expected.bytes.size();
    ASSERT_LE(end, layout.bytes);
    std::ranges::copy(expected.bytes, all.begin() + static_cast<std::ptrdiff_t>(array.offset));
    widest = std::max(widest, array.width);
  }
  ASSERT_TRUE(std::ranges::equal(memory.bytes(), all));
  ASSERT_LE(layout.bytes, collator.most_bytes(samples.size(), samples.size() * widest));
}

TEST(Collator, RandomBatchesMatchTheirDefinition) {
  Random random(1);
  BatchRows batch;  // Used again and again, as by a thread.
  for (int run = 0; run < 500; ++run) {
    const std::size_t num_rows = random.between(1, 30);
    const bool is_binary = random.one_in(2);
    std::vector<Field> fields;
    for (std::uint64_t field = random.between(1, 3); field-- > 0;) {
      fields.push_back(random_field(random, num_rows, is_binary));
    }
    std::vector<Made> made;
    std::vector<Output> outputs;
    for (std::uint64_t output = random.between(1, 6); output-- > 0;) {
      made.push_back(random_output(random, fields[random.below(fields.size())], is_binary));
      outputs.push_back(made.back().output);
    }
    Samples rows(random.between(1, 40));
    std::ranges::generate(rows, [&] { return static_cast<std::int64_t>(random.below(num_rows)); });
    const bool has_rows = random.one_in(2);
    const std::uint64_t multiple = random.one_in(2) ? random.between(1, 9) : 1;
    const Collator collator(
        outputs, has_rows ? std::optional<std::span<std::int64_t>>(rows) : std::nullopt, multiple);
    const std::size_t num_samples = has_rows ? rows.size() : num_rows;
    ASSERT_EQ(collator.num_samples(), num_samples);
    for (int k = 0; k < 4; ++k) {
      Samples samples(random.below(12));
      std::vector<std::size_t> numbers;
      for (std::int64_t& sample : samples) {
        const std::size_t place = random.below(num_samples);
        numbers.push_back(has_rows ? static_cast<std::size_t>(rows[place]) : place);
        sample = static_cast<std::int64_t>(place) -
                 (random.one_in(3) ? static_cast<std::int64_t>(num_samples) : 0);
      }
      expect_batch(collator, made, samples, numbers, multiple, batch);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(Collator, ABatchWithoutSamplesHasNoRowsAndTheLeastWidth) {
  const Field field = one_chunk(DType::kInt32, {{1, 2, 3}});
  const Collator collator({{.key = "ids", .column = field.column},
                           {.key = "lengths", .source = Source::kLengths, .column = field.column}},
                          std::nullopt, 8);
  BatchRows batch;
  collator.look_up({}, batch);
  EXPECT_EQ(batch.layout.num_samples, 0U);
  EXPECT_EQ(batch.layout.bytes, 0U);
  EXPECT_EQ(batch.layout.arrays[0].width, 8U);
  EXPECT_EQ(batch.layout.arrays[1].width, 1U);
  collator.write(batch, nullptr, 4);
}

TEST(Collator, SeveralThreadsWriteWhatOneDoes) {
  Random random(2);
  const auto random_rows = [&](std::size_t most_values, std::size_t cell_values) {
    Field::Rows rows(150);
    for (std::vector<std::uint64_t>& row : rows) {
      row.resize(random.below(most_values) / cell_values * cell_values);
      std::ranges::generate(row, [&] { return random.below(30000); });
    }
    return rows;
  };
  const Field ids = one_chunk(DType::kUInt16, random_rows(9000, 1));
  const Field frames = one_chunk(DType::kFloat32, random_rows(3000, 3), {3});
  const Collator collator({{.key = "ids", .column = ids.column, .padding = 7, .pads_left = true},
                           {.key = "mask", .source = Source::kMask, .column = ids.column},
                           {.key = "frames", .column = frames.column, .dtype = DType::kFloat32},
                           {.key = "lengths", .source = Source::kLengths, .column = ids.column}},
                          std::nullopt, 1);
  Samples samples(150);
  std::ranges::generate(samples, [&] { return static_cast<std::int64_t>(random.below(150)); });
  BatchRows batch;
  collator.look_up(samples, batch);
  ASSERT_GT(batch.layout.bytes, 16U << 20);
  Guarded alone(batch.layout.bytes);
  collator.write(batch, alone.data(), 1);
  for (const int num_threads : {0, 2, 3, 16}) {
    Guarded together(batch.layout.bytes);
    collator.write(batch, together.data(), num_threads);
    EXPECT_TRUE(std::ranges::equal(together.bytes(), alone.bytes()));
    EXPECT_TRUE(together.is_intact());
  }
}

}  // namespace
}  // namespace evenstride
