#include "collate/column.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "collate/pad.h"

namespace evenstride {
namespace {

constexpr std::uint64_t kLargestCell = (std::uint64_t{1} << 31) - 1;

// Calls use(read), where read(i) returns integer i of `integers`, so that loops know the type.
template <class Use>
auto with_reader(const PackedIntegers& integers, Use use) {
  const std::byte* memory = integers.memory();
  const auto reader = [memory]<class T>(T) {
    return [memory](std::uint64_t i) {
      return static_cast<std::uint64_t>(load<T>(memory + i * sizeof(T)));
    };
  };
  switch (integers.type()) {
    case PackedIntegers::Type::kInt32:
      return use(reader(std::int32_t{}));
    case PackedIntegers::Type::kUInt32:
      return use(reader(std::uint32_t{}));
    default:
      return use(reader(std::int64_t{}));
  }
}

struct Survey {
  std::uint64_t longest = 1;
  bool is_sound = true;  // Whether all rows lie inside the values, and begin at a whole cell.
};

Survey survey_offsets(const Chunk& chunk) {
  return with_reader(chunk.bounds, [&](auto bound) {
    Survey survey{.longest = 0, .is_sound = bound(0) <= chunk.num_cells};
    for (std::uint64_t i = 0; i < chunk.num_rows; ++i) {
      const std::uint64_t begin = bound(i);
      const std::uint64_t end = bound(i + 1);
      survey.is_sound &= begin <= end && end <= chunk.num_cells;
      survey.longest = std::max(survey.longest, end - begin);
    }
    return survey;
  });
}

Survey survey_ranges(const Chunk& chunk, std::uint64_t cell_bytes) {
  const std::uint64_t last_start = chunk.num_cells * cell_bytes / chunk.start_bytes;
  const bool starts_at_cells = chunk.start_bytes % cell_bytes == 0;
  return with_reader(chunk.bounds, [&](auto start) {
    return with_reader(chunk.bounds_lengths, [&](auto length) {
      Survey survey{.longest = 0};
      for (std::uint64_t i = 0; i < chunk.num_rows; ++i) {
        const std::uint64_t cells = length(i);
        const std::uint64_t byte = start(i) * chunk.start_bytes;  // Unless it overflows.
        survey.is_sound &= cells <= chunk.num_cells && start(i) <= last_start &&
                           byte <= (chunk.num_cells - cells) * cell_bytes &&
                           (starts_at_cells || byte % cell_bytes == 0);
        survey.longest = std::max(survey.longest, cells);
      }
      return survey;
    });
  });
}

// Returns what is wrong with row i of a chunk between offsets, if anything is.
std::optional<std::string> offsets_fault(const Chunk& chunk, std::uint64_t i) {
  const auto outside = [&](const char* does, std::uint64_t bound) {
    return does + chunk.bounds.text(bound) + ", outside [0, " + std::to_string(chunk.num_cells) +
           "], the values that there are";
  };
  if (chunk.bounds[i] > chunk.num_cells) {
    return outside("begins at ", i);
  }
  if (chunk.bounds[i + 1] < chunk.bounds[i]) {
    return "ends at " + chunk.bounds.text(i + 1) + ", before its begin at " + chunk.bounds.text(i);
  }
  if (chunk.bounds[i + 1] > chunk.num_cells) {
    return outside("ends at ", i + 1);
  }
  return std::nullopt;
}

// The same for a chunk whose rows have a start and a length.
std::optional<std::string> ranges_fault(const Chunk& chunk, std::uint64_t cell_bytes,
                                        std::uint64_t i) {
  const std::uint64_t start = chunk.bounds[i];
  const std::uint64_t length = chunk.bounds_lengths[i];
  const std::string num_cells = std::to_string(chunk.num_cells);
  if (length > chunk.num_cells) {
    return "has length " + chunk.bounds_lengths.text(i) + ", outside [0, " + num_cells +
           "], the values that there are";
  }
  // Division, because the start in bytes can overflow.
  const std::uint64_t last_byte = (chunk.num_cells - length) * cell_bytes;
  if (start > last_byte / chunk.start_bytes) {
    return "begins at " + chunk.bounds.text(i) + " and has length " + std::to_string(length) +
           ", which is outside the " + num_cells + " values that there are";
  }
  const std::uint64_t byte = start * chunk.start_bytes;
  if (byte % cell_bytes != 0) {
    return "begins at byte " + std::to_string(byte) + ", which is no multiple of " +
           std::to_string(cell_bytes) + ", the bytes of a value";
  }
  return std::nullopt;
}

Row row_of(const Chunk& chunk, std::uint64_t cell_bytes, std::uint64_t i) {
  switch (chunk.rows) {
    case Chunk::Rows::kOffsets: {
      const std::uint64_t begin = chunk.bounds[i];
      return {chunk.values + begin * cell_bytes, chunk.bounds[i + 1] - begin};
    }
    case Chunk::Rows::kRanges:
      return {chunk.values + chunk.bounds[i] * chunk.start_bytes, chunk.bounds_lengths[i]};
    default:
      return {chunk.values + i * cell_bytes, 1};
  }
}

}  // namespace

std::uint64_t PackedIntegers::operator[](std::uint64_t i) const noexcept {
  switch (type_) {
    case Type::kInt32:
      return static_cast<std::uint64_t>(load<std::int32_t>(memory_ + i * sizeof(std::int32_t)));
    case Type::kUInt32:
      return load<std::uint32_t>(memory_ + i * sizeof(std::uint32_t));
    default:
      return load<std::uint64_t>(memory_ + i * sizeof(std::uint64_t));
  }
}

std::string PackedIntegers::text(std::uint64_t i) const {
  const std::uint64_t value = (*this)[i];
  const bool is_unsigned = type_ == Type::kUInt32 || type_ == Type::kUInt64;
  return is_unsigned ? std::to_string(value) : std::to_string(static_cast<std::int64_t>(value));
}

Column::Column(std::string name, std::string origin, DType dtype,
               std::vector<std::uint64_t> cell_shape, bool is_ragged)
    : name_(std::move(name)),
      origin_(std::move(origin)),
      dtype_(dtype),
      cell_shape_(std::move(cell_shape)),
      cell_bytes_(size_of(dtype)),
      is_ragged_(is_ragged) {
  for (const std::uint64_t size : cell_shape_) {
    if (size == 0 || size > kLargestCell / cell_bytes_) {
      throw std::invalid_argument(described() +
                                  " must have cells of 1 value to 2**31 - 1 bytes, but one of its "
                                  "dimensions is " +
                                  std::to_string(size) + ".");
    }
    cell_bytes_ *= size;
  }
}

void Column::append(const Chunk& chunk) {
  if (chunk.rows == Chunk::Rows::kOffsets && chunk.bounds.size() == 0) {
    throw std::invalid_argument(described() + " must have at least 1 offset, but has 0.");
  }
  if (chunk.rows == Chunk::Rows::kRanges && chunk.bounds.size() != chunk.bounds_lengths.size()) {
    throw std::invalid_argument(described() + " must have as many starts as lengths, but has " +
                                std::to_string(chunk.bounds.size()) + " and " +
                                std::to_string(chunk.bounds_lengths.size()) + ".");
  }
  if (chunk.rows == Chunk::Rows::kRanges && chunk.start_bytes == 0) {
    throw std::invalid_argument("`start_bytes` must be at least 1, but is 0.");
  }
  Survey survey;
  if (chunk.rows == Chunk::Rows::kOffsets) {
    survey = survey_offsets(chunk);
  } else if (chunk.rows == Chunk::Rows::kRanges) {
    survey = survey_ranges(chunk, cell_bytes_);
  }
  for (std::uint64_t i = 0; !survey.is_sound; ++i) {
    const std::optional<std::string> fault = chunk.rows == Chunk::Rows::kOffsets
                                                 ? offsets_fault(chunk, i)
                                                 : ranges_fault(chunk, cell_bytes_, i);
    if (fault) {
      throw std::invalid_argument(described() + ", row " + std::to_string(num_rows() + i) + ": " +
                                  *fault + ".");
    }
  }
  if (chunk.num_rows > 0) {  // Chunks without rows would only be in the way of look-ups.
    longest_ = std::max(longest_, survey.longest);
    first_rows_.push_back(num_rows() + chunk.num_rows);
    chunks_.push_back(chunk);
  }
}

std::size_t Column::chunk_of(std::uint64_t row) const noexcept {
  if (chunks_.size() == 1) {
    return 0;
  }
  // Files have chunks of the same size, but for the last one.
  const std::uint64_t rows_a_chunk = first_rows_[1];
  const std::uint64_t guess = row / rows_a_chunk;
  if (guess < chunks_.size() && first_rows_[guess] <= row && row < first_rows_[guess + 1]) {
    return guess;
  }
  const auto after = std::ranges::upper_bound(first_rows_, row);
  return static_cast<std::size_t>(after - first_rows_.begin()) - 1;
}

Column::Place Column::find(std::uint64_t row) const noexcept {
  const std::size_t chunk_number = chunk_of(row);
  const Chunk& chunk = chunks_[chunk_number];
  const std::uint64_t row_of_chunk = row - first_rows_[chunk_number];
  if (chunk.rows != Chunk::Rows::kSingle) {
    __builtin_prefetch(chunk.bounds.address(row_of_chunk));
  }
  if (chunk.rows == Chunk::Rows::kRanges) {
    __builtin_prefetch(chunk.bounds_lengths.address(row_of_chunk));
  }
  return {&chunk, row_of_chunk};
}

Row Column::row(const Place& place) const noexcept {
  return row_of(*place.chunk, cell_bytes_, place.row);
}

template <class T>
void Column::write_lengths(std::span<T> lengths) const {
  auto next = lengths.begin();
  for (const Chunk& chunk : chunks_) {
    for (std::uint64_t i = 0; i < chunk.num_rows; ++i) {
      *next++ = static_cast<T>(row_of(chunk, cell_bytes_, i).length);
    }
  }
}

void Column::lengths(std::span<std::int32_t> lengths) const {
  write_lengths(lengths);
}

void Column::lengths(std::span<std::int64_t> lengths) const {
  write_lengths(lengths);
}

std::string Column::described() const {
  return "`" + name_ + "`" + (origin_.empty() ? "" : " of `" + origin_ + "`");
}

}  // namespace evenstride
