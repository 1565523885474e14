// Random collators with the fields that their outputs are made of, and what their batches are by
// definition.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collate/collate.h"
#include "ragged.h"

namespace evenstride::testing {

using Samples = std::vector<std::int64_t>;

inline constexpr std::byte kUntouched{0xCD};

inline Field make_field(DType dtype, Field::Rows rows, std::vector<std::uint64_t> cell_shape = {},
                        bool is_ragged = true) {
  Field field;
  field.dtype = dtype;
  field.cell_shape = cell_shape;
  field.is_ragged = is_ragged;
  field.rows = std::move(rows);
  field.column = std::make_shared<Column>("ids", "corpus", dtype, std::move(cell_shape), is_ragged);
  return field;
}

inline Field one_chunk(DType dtype, Field::Rows rows, std::vector<std::uint64_t> cell_shape = {},
                       bool is_ragged = true) {
  Field field = make_field(dtype, std::move(rows), std::move(cell_shape), is_ragged);
  append_chunk(field, 0, field.rows.size(),
               is_ragged ? Chunk::Rows::kOffsets : Chunk::Rows::kSingle,
               PackedIntegers::Type::kInt64);
  return field;
}

// What the values of all fields of a collator are below, so that they fit into other types.
enum class Magnitude : std::uint8_t { kBool, kSmall, kAny };

struct RandomShape {
  Magnitude magnitude = Magnitude::kAny;
  std::size_t num_rows = 1;
  std::uint64_t longest = 20;
};

inline std::uint64_t random_value(Random& random, Magnitude magnitude, DType dtype) {
  switch (magnitude) {
    case Magnitude::kBool:
      return random.below(2);
    case Magnitude::kSmall:
      return random.below(128);
    default: {
      std::array<std::byte, 8> memory{};
      write_bits(memory.data(), dtype, random.next());
      return read_bits(memory.data(), dtype);
    }
  }
}

inline DType random_dtype(Random& random, Magnitude magnitude) {
  switch (magnitude) {
    case Magnitude::kBool:
      return kDTypes[random.below(9)];
    case Magnitude::kSmall:
      return kDTypes[1 + random.below(8)];
    default:
      return kDTypes[1 + random.below(12)];
  }
}

inline Field random_field(Random& random, const RandomShape& shape) {
  const std::vector<std::vector<std::uint64_t>> cells = {{}, {}, {3}, {2, 2}};
  const DType dtype = random_dtype(random, shape.magnitude);
  Field field = make_field(dtype, {}, cells[random.below(4)], !random.one_in(4));
  for (std::size_t row = 0; row < shape.num_rows; ++row) {
    const std::uint64_t length = field.is_ragged ? random.below(shape.longest) : 1;
    field.rows.emplace_back(length * field.cell_values());
    for (std::uint64_t& bits : field.rows.back()) {
      bits = random_value(random, shape.magnitude, dtype);
    }
  }
  append_chunks(field, random);
  return field;
}

// A field that says of each row how many of its cells are a prompt: few, about all, or far more.
inline Field random_prompts(Random& random, const RandomShape& shape) {
  const DType dtype = kDTypes[1 + random.below(8)];
  Field field = make_field(dtype, {}, {}, false);
  const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * size_of(dtype) + is_signed(dtype));
  for (std::size_t row = 0; row < shape.num_rows; ++row) {
    const std::uint64_t cells = random.one_in(9) ? most : random.below(shape.longest + 5);
    field.rows.push_back({std::min(cells, most)});
  }
  append_chunks(field, random);
  return field;
}

// An output, and the fields that its columns were made of.
struct Made {
  Output output;
  const Field* field;
  const Field* prompts = nullptr;
};

// Returns whether every value that an output of this source can have fits into the type.
inline bool can_be(const Field& field, const RandomShape& shape, Output::Source source,
                   DType dtype) {
  if (source == Output::Source::kValues) {
    const bool is_bool = field.dtype == DType::kBool || dtype == DType::kBool;
    return is_convertible(field.dtype, dtype) &&
           (shape.magnitude == Magnitude::kBool ||
            (shape.magnitude == Magnitude::kSmall && !is_bool) || always_fits(field.dtype, dtype));
  }
  return source == Output::Source::kMask ? !is_float(dtype)
                                         : !is_float(dtype) && dtype != DType::kBool &&
                                               (shape.longest <= 128 || size_of(dtype) > 1);
}

// `prompts` is where a field that says so is kept.
inline Made random_output(Random& random, const Field& field, const RandomShape& shape,
                          std::deque<Field>& prompts) {
  Made made{.output = {.key = "out", .column = field.column}, .field = &field};
  Output& output = made.output;
  output.source =
      random.one_in(3) ? Output::Source::kValues : static_cast<Output::Source>(random.below(4));
  output.dtype = kDTypes[random.below(13)];
  while (!can_be(field, shape, output.source, output.dtype)) {
    output.dtype = kDTypes[random.below(13)];
  }
  output.padding = random.next();
  output.pads_left = random.one_in(2);
  output.start = random.one_in(3) ? random.below(25) : 0;
  if (random.one_in(3)) {
    output.max_length = random.below(25);
  }
  if (output.source == Output::Source::kValues && random.one_in(2)) {
    made.prompts = &prompts.emplace_back(random_prompts(random, shape));
    output.prompt = made.prompts->column;
  }
  return made;
}

// Not to be copied or moved: its parts refer to each other.
struct RandomCollator {
  RandomCollator(Random& random, const RandomShape& shape) {
    for (std::uint64_t field = random.between(1, 3); field-- > 0;) {
      fields.push_back(random_field(random, shape));
    }
    std::vector<Output> outputs;
    for (std::uint64_t output = random.between(1, 6); output-- > 0;) {
      const Field& field = fields[random.below(fields.size())];
      made.push_back(random_output(random, field, shape, prompts));
      outputs.push_back(made.back().output);
    }
    rows.resize(random.between(1, 40));
    std::ranges::generate(rows,
                          [&] { return static_cast<std::int64_t>(random.below(shape.num_rows)); });
    has_rows = random.one_in(2);
    multiple = random.one_in(2) ? random.between(1, 9) : 1;
    num_samples = has_rows ? rows.size() : shape.num_rows;
    collator = std::make_shared<const Collator>(
        outputs, has_rows ? std::optional<std::span<const std::int64_t>>(rows) : std::nullopt,
        multiple);
  }
  RandomCollator(const RandomCollator&) = delete;
  RandomCollator& operator=(const RandomCollator&) = delete;
  ~RandomCollator() = default;

  // Fewer than `end` of them, counted from either end.
  [[nodiscard]] Samples random_samples(Random& random, std::uint64_t end) const {
    Samples samples(random.below(end));
    for (std::int64_t& sample : samples) {
      sample = static_cast<std::int64_t>(random.below(num_samples)) -
               (random.one_in(3) ? static_cast<std::int64_t>(num_samples) : 0);
    }
    return samples;
  }

  // The rows of the fields that samples are.
  [[nodiscard]] std::vector<std::size_t> numbers_of(const Samples& samples) const {
    std::vector<std::size_t> numbers;
    for (const std::int64_t sample : samples) {
      const auto place = static_cast<std::size_t>(
          sample < 0 ? sample + static_cast<std::int64_t>(num_samples) : sample);
      numbers.push_back(has_rows ? static_cast<std::size_t>(rows[place]) : place);
    }
    return numbers;
  }

  std::deque<Field> fields;
  std::deque<Field> prompts;
  std::vector<Made> made;
  Samples rows;
  bool has_rows = false;
  std::uint64_t multiple = 1;
  std::size_t num_samples = 0;
  std::shared_ptr<const Collator> collator;
};

// What collate.h says of one output of a batch, transcribed.
struct Expected {
  std::uint64_t width = 1;
  std::uint64_t truncated_samples = 0;
  std::uint64_t truncated_tokens = 0;
  std::vector<std::byte> bytes;
};

inline Expected expected_of(const Made& made, const std::vector<std::size_t>& numbers,
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
  const bool is_wide = made.field->is_ragged && output.source != Output::Source::kLengths;
  while (is_wide && (expected.width < longest || expected.width % multiple != 0)) {
    ++expected.width;
  }
  const auto put = [&](std::uint64_t bits) {
    std::array<std::byte, 8> memory{};
    write_bits(memory.data(), output.dtype, bits);
    expected.bytes.insert(expected.bytes.end(), memory.begin(),
                          memory.begin() + static_cast<std::ptrdiff_t>(size_of(output.dtype)));
  };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::vector<std::uint64_t>& row = cut[i];
    const std::uint64_t length = row.size() / cell;
    if (output.source == Output::Source::kLengths) {
      put(length);
      continue;
    }
    const std::uint64_t prompt = made.prompts != nullptr ? made.prompts->rows[numbers[i]][0] : 0;
    const std::uint64_t start = made.field->is_ragged ? output.start : 0;
    const std::uint64_t first = output.pads_left ? expected.width - length : 0;
    for (std::uint64_t place = 0; place < expected.width; ++place) {
      const bool is_token = first <= place && place < first + length;
      if (output.source == Output::Source::kMask) {
        put(is_token ? 1 : 0);
      } else if (output.source == Output::Source::kPositions) {
        put(is_token ? place - first : 0);
      } else {
        const bool is_shown = is_token && start + (place - first) >= prompt;
        for (std::uint64_t k = 0; k < cell; ++k) {
          put(is_shown ? row[(place - first) * cell + k] : output.padding);
        }
      }
    }
  }
  return expected;
}

}  // namespace evenstride::testing
