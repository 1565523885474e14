#include "collate/collate.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/threads.h"

namespace evenstride {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 28;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostValuesOfRow = (std::uint64_t{1} << 31) - 1;
constexpr std::uint64_t kBytesOfThread = std::uint64_t{4} << 20;  // Take longer than a start.

// What is asked for of a row: its beginning when it is looked up, more of it while the row before
// it is written. From there on the processor runs ahead by itself.
constexpr std::uintptr_t kLine = 64;
constexpr std::uint64_t kBeginning = 512;
constexpr std::uint64_t kMore = 8192;

bool has_width(const Output& output) {
  return output.column->is_ragged() && output.source != Output::Source::kLengths;
}

Pad pad_of(const Output& output) {
  switch (output.source) {
    case Output::Source::kValues:
      return pad_values_of(output.column->dtype(), output.dtype);
    case Output::Source::kMask:
      return pad_mask_of(output.dtype);
    case Output::Source::kPositions:
      return pad_positions_of(output.dtype);
    default:
      return pad_values_of(DType::kUInt64, output.dtype);
  }
}

bool may_misfit(const Output& output) {
  switch (output.source) {
    case Output::Source::kValues:
      return !always_fits(output.column->dtype(), output.dtype);
    case Output::Source::kMask:
      return false;
    default:
      return size_of(output.dtype) < sizeof(std::uint32_t);
  }
}

void check_rows(const Column& column, const Column& first) {
  if (column.num_rows() != first.num_rows()) {
    throw std::invalid_argument(column.described() + " must have " +
                                std::to_string(first.num_rows()) + " rows, as many as " +
                                first.described() + ", but has " +
                                std::to_string(column.num_rows()) + ".");
  }
}

void check_column(const Output& output, const Column& first) {
  const Column& column = *output.column;
  check_rows(column, first);
  if (output.source != Output::Source::kValues && is_float(output.dtype)) {
    throw std::invalid_argument("`" + output.key + "` must be of integers or bools, but is " +
                                std::string(name_of(output.dtype)) + ".");
  }
  if (output.source == Output::Source::kValues && !is_convertible(column.dtype(), output.dtype)) {
    throw std::invalid_argument("`" + output.key + "` cannot be " +
                                std::string(name_of(output.dtype)) + ": " + column.described() +
                                " holds " + std::string(name_of(column.dtype())) +
                                ", and only integers and bools become others of these.");
  }
}

void check_prompt(const Output& output, const Column& first) {
  const Column& prompt = *output.prompt;
  if (output.source != Output::Source::kValues) {
    throw std::invalid_argument("`" + output.key + "` must be of values to have a prompt.");
  }
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("The prompt of `" + output.key +
                                "` must be one integer a row, but " + prompt.described() +
                                " holds " + what + ".");
  };
  if (is_float(prompt.dtype()) || prompt.dtype() == DType::kBool) {
    refuse(is_float(prompt.dtype()) ? "floats" : "bools");
  }
  if (prompt.is_ragged() || prompt.cell_values() != 1) {
    refuse("several values a row");
  }
  check_rows(prompt, first);
}

// Asks for the cache lines of the bytes [begin, end) of a row. Into the second-level cache, which
// has room for all rows of a batch, and waits for more lines at once than the first does.
void prefetch(const Row& row, std::uint64_t cell_bytes, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t last = std::min(end, row.length * cell_bytes);
  if (begin >= last) {
    return;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(row.values);
  const auto* line = row.values + begin - (address + begin) % kLine;
  for (const std::byte* const past = row.values + last; line < past; line += kLine) {
    __builtin_prefetch(line, 0, 2);
  }
}

const std::byte* bytes_of(const std::uint64_t& number) {
  return reinterpret_cast<const std::byte*>(&number);
}

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Throws std::range_error, which says what the row `does`, if a value does not fit.
void check_fits(const Output& output, std::uint64_t number, const char* does,
                const std::byte* values, std::uint64_t count, DType from) {
  const std::uint64_t misfit = first_misfit(values, count, from, output.dtype);
  if (misfit < count) {
    throw std::range_error(output.column->described() + ", row " + std::to_string(number) + ": " +
                           does + " " + integer_at(values, misfit, from) +
                           ", which does not fit into " + std::string(name_of(output.dtype)) +
                           ", the type of `" + output.key + "`.");
  }
}

void check_row(const Output& output, std::uint64_t number, const Row& row) {
  const Column& column = *output.column;
  if (output.source == Output::Source::kValues) {
    check_fits(output, number, "holds", row.values, row.length * column.cell_values(),
               column.dtype());
  } else if (output.source == Output::Source::kLengths) {
    check_fits(output, number, "has length", bytes_of(row.length), 1, DType::kUInt64);
  } else if (row.length > 0) {
    const std::uint64_t last = row.length - 1;
    check_fits(output, number, "has position", bytes_of(last), 1, DType::kUInt64);
  }
}

// Returns how many cells of a row are its prompt.
std::uint64_t prompt_at(const Output& output, std::uint64_t number, const Row& row) {
  const DType dtype = output.prompt->dtype();
  if (first_misfit(row.values, 1, dtype, DType::kUInt64) == 0) {
    throw std::range_error(output.prompt->described() + ", row " + std::to_string(number) +
                           ": must be at least 0, the cells of a prompt, but is " +
                           integer_at(row.values, 0, dtype) + ".");
  }
  std::uint64_t cells = 0;
  pad_row(pad_values_of(dtype, DType::kUInt64), {.values = row.values,
                                                 .out = reinterpret_cast<std::byte*>(&cells),
                                                 .length = 1,
                                                 .width = 1,
                                                 .prompt = 0,
                                                 .padding = 0,
                                                 .pads_left = false});
  return cells;
}

}  // namespace

Collator::Collator(std::vector<Output> outputs, std::optional<std::span<const std::int64_t>> rows,
                   std::uint64_t pad_to_multiple_of)
    : outputs_(std::move(outputs)), rows_(rows), pad_to_multiple_of_(pad_to_multiple_of) {
  if (outputs_.empty()) {
    throw std::invalid_argument("A batch must have at least 1 key, but has 0.");
  }
  if (pad_to_multiple_of == 0 || pad_to_multiple_of > kMostValuesOfRow) {
    throw std::invalid_argument("`pad_to_multiple_of` must be in [1, 2**31), but is " +
                                std::to_string(pad_to_multiple_of) + ".");
  }
  const Column& first = *outputs_.front().column;
  for (const Output& output : outputs_) {
    check_column(output, first);
    if (output.prompt != nullptr) {
      check_prompt(output, first);
    }
    recipes_.push_back(recipe_of(output));
  }
  num_samples_ = rows_ ? rows_->size() : first.num_rows();
  for (std::size_t i = 0; rows_ && i < rows_->size(); ++i) {
    const auto row = static_cast<std::uint64_t>((*rows_)[i]);
    if (row >= first.num_rows()) {
      throw std::invalid_argument("Sample " + std::to_string(i) + " must be a row in [0, " +
                                  std::to_string(first.num_rows()) + "), but is row " +
                                  std::to_string((*rows_)[i]) + ".");
    }
  }
}

Collator::Recipe Collator::recipe_of(const Output& output) {
  const bool takes_values = output.source == Output::Source::kValues;
  const auto same = std::ranges::find_if(readings_, [&](const Reading& reading) {
    return reading.column == output.column.get() && reading.start == output.start &&
           reading.max_length == output.max_length;
  });
  const auto place = static_cast<std::size_t>(same - readings_.begin());
  if (same == readings_.end()) {
    readings_.push_back({output.column.get(), output.start, output.max_length, takes_values});
  } else {
    same->takes_values |= takes_values;
  }
  return {.reading = place,
          .pad = pad_of(output),
          .cell_values = takes_values ? output.column->cell_values() : 1,
          .checks = may_misfit(output)};
}

std::uint64_t Collator::row_of(std::span<const std::int64_t> samples, std::size_t i) const {
  const auto given = static_cast<std::uint64_t>(samples[i]);
  const std::uint64_t sample = samples[i] < 0 ? given + num_samples_ : given;
  if (sample >= num_samples_) {
    throw_outside(i, std::to_string(samples[i]));
  }
  return rows_ ? static_cast<std::uint64_t>((*rows_)[sample]) : sample;
}

void Collator::throw_outside(std::size_t i, const std::string& sample) const {
  const std::string end = std::to_string(num_samples_);
  throw std::out_of_range("`indices[" + std::to_string(i) + "]` must be in [-" + end + ", " + end +
                          "), but is " + sample + ".");
}

void Collator::look_up(std::span<const std::int64_t> samples, BatchRows& batch) const {
  if (samples.size() >= kMostSamples) {
    throw std::length_error("A batch must have fewer than 2**28 samples, but has " +
                            std::to_string(samples.size()) + ".");
  }
  batch.numbers.clear();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    batch.numbers.push_back(row_of(samples, i));
  }
  batch.readings.resize(readings_.size());
  for (std::size_t r = 0; r < readings_.size(); ++r) {
    batch.readings[r].places.clear();
    for (const std::uint64_t number : batch.numbers) {
      batch.readings[r].places.push_back(readings_[r].column->find(number));
    }
  }
  for (std::size_t r = 0; r < readings_.size(); ++r) {
    read(readings_[r], batch.readings[r]);
  }
  read_prompts(batch);
  lay_out(batch);
}

void Collator::read(const Reading& reading, BatchRows::Reading& into) const {
  const Column& column = *reading.column;
  into.rows.clear();
  into.truncated_samples = into.truncated_tokens = 0;
  std::uint64_t longest = 1;
  for (const Column::Place& place : into.places) {
    Row row = column.row(place);
    if (column.is_ragged()) {
      const std::uint64_t skipped = std::min(reading.start, row.length);
      const std::uint64_t length = std::min(reading.max_length, row.length - skipped);
      into.truncated_tokens += row.length - skipped - length;
      into.truncated_samples += length < row.length - skipped ? 1 : 0;
      row = {row.values + skipped * column.cell_bytes(), length};
      longest = std::max(longest, length);
    }
    into.rows.push_back(row);
    if (reading.takes_values) {
      prefetch(row, column.cell_bytes(), 0, kBeginning);
    }
  }
  into.width = column.is_ragged() ? rounded_up(longest, pad_to_multiple_of_) : 1;
}

void Collator::read_prompts(BatchRows& batch) const {
  batch.prompts.resize(outputs_.size());
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const Output& output = outputs_[o];
    batch.prompts[o].clear();
    if (output.prompt == nullptr) {
      continue;
    }
    const std::vector<Row>& rows = batch.readings[recipes_[o].reading].rows;
    const std::uint64_t start = output.column->is_ragged() ? output.start : 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row row = output.prompt->row(batch.numbers[i]);
      const std::uint64_t cells = prompt_at(output, batch.numbers[i], row);
      const std::uint64_t skipped = std::min(start, cells);
      batch.prompts[o].push_back(
          static_cast<std::uint32_t>(std::min(cells - skipped, rows[i].length)));
    }
  }
}

void Collator::lay_out(BatchRows& batch) const {
  Layout& layout = batch.layout;
  layout.num_samples = batch.numbers.size();
  layout.arrays.resize(outputs_.size());
  layout.bytes = 0;
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const Output& output = outputs_[o];
    const BatchRows::Reading& reading = batch.readings[recipes_[o].reading];
    const std::uint64_t width = has_width(output) ? reading.width : 1;
    if (width > kMostValuesOfRow / recipes_[o].cell_values) {
      throw std::length_error(
          "`" + output.key +
          "` must have rows of fewer than 2**31 values, but would have rows of " +
          std::to_string(width) + " times " + std::to_string(recipes_[o].cell_values) + ".");
    }
    layout.arrays[o] = {layout.bytes, width, reading.truncated_samples, reading.truncated_tokens};
    const std::uint64_t values = layout.num_samples * width * recipes_[o].cell_values;
    layout.bytes += rounded_up(values * size_of(output.dtype), kAlignment);
    if (layout.bytes >= kMostBytes) {
      throw std::length_error("A batch must have fewer than 2**62 bytes, but has " +
                              std::to_string(layout.bytes) + " up to `" + output.key + "`.");
    }
  }
}

std::uint64_t Collator::most_bytes(std::uint64_t num_samples, std::uint64_t num_tokens) const {
  std::uint64_t bytes = 0;
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const std::uint64_t places = has_width(outputs_[o]) ? num_tokens : num_samples;
    const std::uint64_t values = places * recipes_[o].cell_values;
    bytes += rounded_up(values * size_of(outputs_[o].dtype), kAlignment);
  }
  return bytes;
}

void Collator::check_fits(const BatchRows& batch) const {
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const std::vector<Row>& rows = batch.readings[recipes_[o].reading].rows;
    for (std::size_t i = 0; recipes_[o].checks && i < rows.size(); ++i) {
      check_row(outputs_[o], batch.numbers[i], rows[i]);
    }
  }
}

void Collator::write(const BatchRows& batch, std::byte* memory, int num_threads) const {
  const std::uint64_t num_samples = batch.layout.num_samples;
  const auto write_samples = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      write_output(o, batch, memory, begin, end);
    }
  };
  const std::uint64_t parts = std::min(batch.layout.bytes / kBytesOfThread, num_samples);
  if (num_threads <= 1 || parts <= 1) {
    write_samples(0, num_samples);
    return;
  }
  Team team(static_cast<int>(std::min<std::uint64_t>(parts, static_cast<unsigned>(num_threads))));
  team.for_each(parts, [&](std::size_t part, int) {
    write_samples(num_samples * part / parts, num_samples * (part + 1) / parts);
  });
}

void Collator::write_output(std::size_t o, const BatchRows& batch, std::byte* memory,
                            std::uint64_t begin, std::uint64_t end) const {
  const Output& output = outputs_[o];
  const Recipe& recipe = recipes_[o];
  const Layout::Array& array = batch.layout.arrays[o];
  const std::vector<Row>& rows = batch.readings[recipe.reading].rows;
  const std::vector<std::uint32_t>& prompts = batch.prompts[o];
  const std::uint64_t width = array.width * recipe.cell_values;
  const bool takes_values = output.source == Output::Source::kValues;
  const bool takes_lengths = output.source == Output::Source::kLengths;
  std::byte* out = memory + array.offset + begin * width * size_of(output.dtype);
  for (std::uint64_t i = begin; i < end; ++i, out += width * size_of(output.dtype)) {
    const Row& row = rows[i];
    if (takes_values && i + 1 < end) {
      prefetch(rows[i + 1], output.column->cell_bytes(), kBeginning, kMore);
    }
    if (recipe.checks) {
      check_row(output, batch.numbers[i], row);
    }
    const std::uint64_t prompt = prompts.empty() ? 0 : prompts[i] * recipe.cell_values;
    const std::uint64_t length = takes_lengths ? 1 : row.length * recipe.cell_values;
    pad_row(recipe.pad, {.values = takes_lengths ? bytes_of(row.length) : row.values,
                         .out = out,
                         .length = static_cast<std::uint32_t>(length),
                         .width = static_cast<std::uint32_t>(width),
                         .prompt = static_cast<std::uint32_t>(prompt),
                         .padding = takes_values ? output.padding : 0,
                         .pads_left = output.pads_left});
  }
}

}  // namespace evenstride
