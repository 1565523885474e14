// Plain ragged data, columns made of it, and memory whose borders are watched.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collate/column.h"
#include "collate/dtype.h"
#include "samples.h"

namespace evenstride::testing {

inline constexpr DType kDTypes[] = {
    DType::kBool,     DType::kInt8,    DType::kUInt8,  DType::kInt16,  DType::kUInt16,
    DType::kInt32,    DType::kUInt32,  DType::kInt64,  DType::kUInt64, DType::kFloat16,
    DType::kBFloat16, DType::kFloat32, DType::kFloat64};

template <class Error, class Call>
void expect_error(const Call& call, const std::string& sentence) {
  try {
    call();
    ADD_FAILURE() << "nothing thrown, but expected: " << sentence;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), sentence);
  }
}

// Returns the bits of a value, extended to 64 by its sign if its type has one.
inline std::uint64_t read_bits(const std::byte* memory, DType dtype) {
  std::uint64_t bits = 0;
  for (std::size_t i = size_of(dtype); i-- > 0;) {
    bits = bits << 8 | static_cast<std::uint64_t>(memory[i]);
  }
  const std::size_t unused = 64 - 8 * size_of(dtype);
  const bool is_negative = is_signed(dtype) && (bits >> (63 - unused) & 1) == 1;
  return is_negative && unused > 0 ? bits | ~std::uint64_t{0} << (64 - unused) : bits;
}

inline void write_bits(std::byte* memory, DType dtype, std::uint64_t bits) {
  for (std::size_t i = 0; i < size_of(dtype); ++i) {
    memory[i] = static_cast<std::byte>(bits >> (8 * i));
  }
}

// Memory of `size` bytes, `misalignment` bytes after a multiple of 64, between canaries that show
// who writes beside it.
class Guarded {
 public:
  explicit Guarded(std::size_t size, std::size_t misalignment = 0)
      : size_(size), storage_(2 * kGuard + misalignment + size + kGuard, kCanary) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = kGuard + (kGuard - address % kGuard) % kGuard + misalignment;
  }

  [[nodiscard]] std::byte* data() { return storage_.data() + begin_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::span(storage_).subspan(begin_, size_);
  }
  [[nodiscard]] bool is_intact() const {
    const auto end = storage_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_);
    const auto is_canary = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(storage_.begin(), storage_.begin() + static_cast<std::ptrdiff_t>(begin_),
                       is_canary) &&
           std::all_of(end, storage_.end(), is_canary);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kCanary{0xA5};

  std::size_t size_;
  std::vector<std::byte> storage_;
  std::size_t begin_;
};

// Rows of bits, as read_bits returns them, and a column of them in memory of its own.
struct Field {
  using Rows = std::vector<std::vector<std::uint64_t>>;  // cell_values entries a cell.

  DType dtype = DType::kInt64;
  std::vector<std::uint64_t> cell_shape;
  bool is_ragged = true;
  Rows rows;
  std::shared_ptr<Column> column;
  std::vector<std::shared_ptr<std::vector<std::byte>>> memory;

  [[nodiscard]] std::uint64_t cell_values() const {
    std::uint64_t values = 1;
    for (const std::uint64_t size : cell_shape) {
      values *= size;
    }
    return values;
  }
  [[nodiscard]] std::uint64_t length(std::size_t row) const {
    return rows[row].size() / cell_values();
  }
};

// Returns memory of exactly this size at an odd address, kept by the field.
inline std::byte* odd_memory(Field& field, std::size_t size) {
  field.memory.push_back(std::make_shared<std::vector<std::byte>>(size + 1));
  return field.memory.back()->data() + 1;
}

// Returns integers in memory of the field.
inline PackedIntegers packed(Field& field, const std::vector<std::uint64_t>& integers,
                             PackedIntegers::Type type) {
  const bool is_narrow =
      type == PackedIntegers::Type::kInt32 || type == PackedIntegers::Type::kUInt32;
  const DType dtype = is_narrow ? DType::kUInt32 : DType::kUInt64;
  std::byte* const memory = odd_memory(field, integers.size() * size_of(dtype));
  for (std::size_t i = 0; i < integers.size(); ++i) {
    write_bits(memory + i * size_of(dtype), dtype, integers[i]);
  }
  return {memory, integers.size(), type};
}

// Appends rows [begin, end) to the field's column, as one chunk with `waste` cells before them.
inline void append_chunk(Field& field, std::size_t begin, std::size_t end, Chunk::Rows kind,
                         PackedIntegers::Type type, std::uint64_t waste = 0) {
  const std::uint64_t cell_bytes = field.cell_values() * size_of(field.dtype);
  std::vector<std::uint64_t> offsets{waste};
  std::vector<std::uint64_t> lengths;
  for (std::size_t row = begin; row < end; ++row) {
    lengths.push_back(field.length(row));
    offsets.push_back(offsets.back() + lengths.back());
  }
  Chunk chunk{.num_cells = offsets.back(), .num_rows = end - begin, .rows = kind};
  std::byte* const values = odd_memory(field, chunk.num_cells * cell_bytes);
  std::byte* next = values + waste * cell_bytes;
  for (std::size_t row = begin; row < end; ++row) {
    for (const std::uint64_t bits : field.rows[row]) {
      write_bits(next, field.dtype, bits);
      next += size_of(field.dtype);
    }
  }
  chunk.values = values;
  if (kind == Chunk::Rows::kOffsets) {
    chunk.bounds = packed(field, offsets, type);
  } else if (kind == Chunk::Rows::kRanges) {
    offsets.pop_back();
    for (std::uint64_t& offset : offsets) {
      offset *= cell_bytes;
    }
    chunk.bounds = packed(field, offsets, type);
    chunk.bounds_lengths = packed(field, lengths, type);
    chunk.start_bytes = 1;
  }
  field.column->append(chunk);
}

// Appends all rows, in chunks of random sizes and kinds, some of them empty.
inline void append_chunks(Field& field, Random& random) {
  std::size_t row = 0;
  while (row < field.rows.size() || random.one_in(2)) {
    const std::size_t size = std::min<std::size_t>(random.below(6), field.rows.size() - row);
    const auto ragged = random.one_in(2) ? Chunk::Rows::kOffsets : Chunk::Rows::kRanges;
    const auto kind = field.is_ragged ? ragged : Chunk::Rows::kSingle;
    append_chunk(field, row, row + size, kind, static_cast<PackedIntegers::Type>(random.below(4)),
                 field.is_ragged ? random.below(4) : 0);
    row += size;
  }
}

}  // namespace evenstride::testing
