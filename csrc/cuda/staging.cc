#include "cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "cuda/pad_tile.h"

namespace evenstride {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;
constexpr std::uint64_t kMostCellsOfRow = (std::uint64_t{1} << 32) - 1;

std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

std::uint32_t place_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(bytes / kStagingAlignment);
}

// How the rows of a group stand in their places.
class RowPacking {
 public:
  RowPacking(const Column& column, std::uint64_t width, bool pads_left)
      : cell_bytes_(column.cell_bytes()),
        cell_values_(static_cast<std::uint32_t>(column.cell_values())),
        wire_bytes_(static_cast<std::uint32_t>(size_of(column.dtype()))),
        width_(static_cast<std::uint32_t>(width) * cell_values_),
        pads_left_(pads_left) {}

  [[nodiscard]] std::uint64_t bytes(const Row& row) const { return row.length * cell_bytes_; }
  // Before the first value of sample number i.
  [[nodiscard]] std::uint64_t shift(std::size_t i, const Row& row) const {
    const auto length = static_cast<std::uint32_t>(row.length) * cell_values_;
    return staged_shift(static_cast<std::uint32_t>(i), width_, pads_left_ ? width_ - length : 0,
                        wire_bytes_);
  }
  // With what is left free on either side.
  [[nodiscard]] std::uint64_t room(std::size_t i, const Row& row) const {
    return row.length == 0 ? 0 : rounded_up(shift(i, row) + bytes(row));
  }

 private:
  std::uint64_t cell_bytes_;
  std::uint32_t cell_values_;
  std::uint32_t wire_bytes_;
  std::uint32_t width_;  // In values.
  bool pads_left_;
};

PadField field_of(const Output& output, const Collator::Recipe& recipe,
                  const Layout::Array& array) {
  const bool takes_lengths = output.source == Output::Source::kLengths;
  return {.out = array.offset,
          .padding = output.source == Output::Source::kValues ? output.padding : 0,
          .prompts = PadField::kNoPrompt,
          .width = static_cast<std::uint32_t>(array.width * recipe.cell_values),
          .cell_values = static_cast<std::uint32_t>(recipe.cell_values),
          .pad = takes_lengths ? pad_values_of(DType::kUInt32, output.dtype) : recipe.pad,
          .rows = takes_lengths ? PadField::Rows::kLengths : PadField::Rows::kValues,
          .pads_left = output.pads_left};
}

void check_length(const Output& output, const BatchRows::Reading& reading) {
  if (reading.width > kMostCellsOfRow) {
    throw std::length_error("`" + output.key +
                            "` must have rows of fewer than 2**32 tokens to be made on a device, "
                            "but would have rows of " +
                            std::to_string(reading.width) + ".");
  }
}

void check_bytes(std::uint64_t bytes) {
  if (bytes >= kMostBytes) {
    throw std::length_error(
        "The rows of a batch must have fewer than 2**36 bytes to be made on a "
        "device, but have at least " +
        std::to_string(bytes) + ".");
  }
}

}  // namespace

std::uint64_t StagedBatch::padded_tokens() const {
  std::uint64_t width = 0;
  for (const Layout::Array& array : layout.arrays) {
    width = std::max(width, array.width);
  }
  return layout.num_samples * width;
}

Staging::Staging(std::shared_ptr<const Collator> collator) : collator_(std::move(collator)) {
  const std::vector<Output>& outputs = collator_->outputs();
  if (outputs.size() > kMostFields) {
    throw std::invalid_argument("A batch must have at most " + std::to_string(kMostFields) +
                                " keys to be made on a device, but has " +
                                std::to_string(outputs.size()) + ".");
  }
  // Values first: what takes none goes to where the same rows are.
  for (const bool takes_values : {true, false}) {
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if ((outputs[o].source == Output::Source::kValues) == takes_values) {
        group_of(o).outputs.push_back(o);
      }
    }
  }
}

Staging::Group& Staging::group_of(std::size_t o) {
  const Output& output = collator_->outputs()[o];
  const std::size_t reading = collator_->recipes()[o].reading;
  const bool takes_values = output.source == Output::Source::kValues;
  const auto same = std::ranges::find_if(groups_, [&](const Group& group) {
    return group.reading == reading && (!takes_values || group.pads_left == output.pads_left);
  });
  if (same != groups_.end()) {
    return *same;
  }
  return groups_.emplace_back(Group{reading, output.pads_left, takes_values, {}});
}

std::uint64_t Staging::most_bytes(std::uint64_t num_samples, std::uint64_t num_tokens) const {
  std::uint64_t bytes = 0;
  for (const Group& group : groups_) {
    bytes += rounded_up(num_samples * sizeof(StagedRow));
    for (const std::size_t o : group.outputs) {
      if (collator_->outputs()[o].prompt != nullptr) {
        bytes += rounded_up(num_samples * sizeof(std::uint32_t));
      }
    }
    if (group.takes_values) {
      const Column& column = *collator_->readings()[group.reading].column;
      const std::uint64_t cells = column.is_ragged() ? num_tokens : num_samples;
      // What is free before and after the values of a row.
      const std::uint64_t most_free = 2 * (kStagingAlignment - size_of(column.dtype()));
      bytes += cells * column.cell_bytes() + num_samples * most_free;
    }
  }
  return bytes;
}

void Staging::lay_out(const BatchRows& rows, StagedBatch& batch) const {
  batch.layout = rows.layout;
  PadBatch& pad = batch.pad;
  pad.num_rows = static_cast<std::uint32_t>(rows.layout.num_samples);
  pad.num_groups = static_cast<std::uint32_t>(groups_.size());
  std::uint64_t bytes = 0;
  const auto add_table = [&](std::uint64_t entry_bytes) {
    const std::uint32_t place = place_of(bytes);
    bytes += rounded_up(rows.layout.num_samples * entry_bytes);
    check_bytes(bytes);
    return place;
  };
  std::uint32_t num_fields = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    PadGroup& group = pad.groups[g];
    group = {.rows = add_table(sizeof(StagedRow)),
             .first_field = num_fields,
             .end_field = num_fields,
             .tiles = 1};
    for (const std::size_t o : groups_[g].outputs) {
      const Output& output = collator_->outputs()[o];
      check_length(output, rows.readings[groups_[g].reading]);
      PadField& field = pad.fields[num_fields++];
      field = field_of(output, collator_->recipes()[o], rows.layout.arrays[o]);
      if (output.prompt != nullptr) {
        field.prompts = add_table(sizeof(std::uint32_t));
      }
      group.tiles = std::max(group.tiles, num_tiles(field.width));
    }
    group.end_field = num_fields;
  }
  batch.table_bytes = bytes;
  for (const Group& group : groups_) {
    if (!group.takes_values) {
      continue;
    }
    const BatchRows::Reading& reading = rows.readings[group.reading];
    const RowPacking packing(*collator_->readings()[group.reading].column, reading.width,
                             group.pads_left);
    for (std::size_t i = 0; i < reading.rows.size(); ++i) {
      bytes += packing.room(
          i, reading.rows[i]);  // Of 2^28 rows of less than 2^35 bytes each: no overflow.
    }
    check_bytes(bytes);
  }
  batch.bytes = bytes;
}

void Staging::write(const BatchRows& rows, const StagedBatch& batch, std::byte* slab) const {
  collator_->check_fits(rows);
  const auto at = [slab](std::uint32_t place) {
    return slab + std::uint64_t{place} * kStagingAlignment;
  };
  std::uint64_t end = batch.table_bytes;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const BatchRows::Reading& reading = rows.readings[group.reading];
    const RowPacking packing(*collator_->readings()[group.reading].column, reading.width,
                             group.pads_left);
    auto* const staged = reinterpret_cast<StagedRow*>(at(batch.pad.groups[g].rows));
    for (std::size_t i = 0; i < reading.rows.size(); ++i) {
      const Row& row = reading.rows[i];
      staged[i] = {place_of(end), static_cast<std::uint32_t>(row.length)};
      if (group.takes_values && row.length > 0) {
        std::memcpy(slab + end + packing.shift(i, row), row.values, packing.bytes(row));
        end += packing.room(i, row);
      }
    }
    for (std::size_t k = 0; k < group.outputs.size(); ++k) {
      const PadField& field = batch.pad.fields[batch.pad.groups[g].first_field + k];
      if (const auto& prompts = rows.prompts[group.outputs[k]]; !prompts.empty()) {
        std::memcpy(at(field.prompts), prompts.data(), prompts.size() * sizeof(std::uint32_t));
      }
    }
  }
}

}  // namespace evenstride
