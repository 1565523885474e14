// One field of a ragged data set: rows of values, in any number of chunks, read where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collate/dtype.h"

namespace evenstride {

// Integers in memory of any alignment.
class PackedIntegers {
 public:
  enum class Type : std::uint8_t { kInt32, kUInt32, kInt64, kUInt64 };

  PackedIntegers() = default;
  PackedIntegers(const std::byte* memory, std::uint64_t size, Type type)
      : memory_(memory), size_(size), type_(type) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const std::byte* memory() const noexcept { return memory_; }
  [[nodiscard]] Type type() const noexcept { return type_; }

  [[nodiscard]] const std::byte* address(std::uint64_t i) const noexcept {
    const bool is_narrow = type_ == Type::kInt32 || type_ == Type::kUInt32;
    return memory_ + i * (is_narrow ? sizeof(std::int32_t) : sizeof(std::int64_t));
  }

  // Returns integer i; a negative one wraps to 2^63 and more. Precondition: i < size().
  [[nodiscard]] std::uint64_t operator[](std::uint64_t i) const noexcept;

  // Returns integer i with its sign, for errors.
  [[nodiscard]] std::string text(std::uint64_t i) const;

 private:
  const std::byte* memory_ = nullptr;
  std::uint64_t size_ = 0;
  Type type_ = Type::kInt64;
};

// A run of values that lie one after the other, and the rows that are cut from it. A cell is what
// one token has: a value, or a fixed number of them in fields such as frames of features.
struct Chunk {
  enum class Rows : std::uint8_t {
    kOffsets,  // Row i holds the cells [bounds[i], bounds[i + 1]).
    kRanges,   // Row i holds bounds_lengths[i] cells from byte bounds[i] * start_bytes on.
    kSingle,   // Row i holds the cell i: the field has one fixed-shape value a row.
  };

  const std::byte* values = nullptr;
  std::uint64_t num_cells = 0;
  std::uint64_t num_rows = 0;
  Rows rows = Rows::kSingle;
  // GCC misses an initializer where clang-tidy finds one too many.
  // NOLINTBEGIN(readability-redundant-member-init)
  PackedIntegers bounds{};          // num_rows + 1 offsets, or num_rows starts.
  PackedIntegers bounds_lengths{};  // num_rows lengths, where there are starts.
  // NOLINTEND(readability-redundant-member-init)
  std::uint64_t start_bytes = 0;  // At least 1, where there are starts.
};

// Where the values of a row lie, at any alignment, and how many cells they are.
struct Row {
  const std::byte* values;
  std::uint64_t length;
};

// Rows of one field. Refers to the memory of its chunks, which must outlive it and keep its values.
class Column {
 public:
  // `name` and `origin` stand in errors; `origin` says where the values are from, and may be empty.
  // `cell_shape` is the shape of a cell, empty where it is one value. Throws std::invalid_argument
  // if a cell has no value, or 2^31 bytes or more.
  Column(std::string name, std::string origin, DType dtype, std::vector<std::uint64_t> cell_shape,
         bool is_ragged);

  // Appends the rows of a chunk, after checking that each lies inside the values, and begins at a
  // whole cell. Throws std::invalid_argument that names the column, its origin, the row and the
  // value. Takes a pass over the bounds. Preconditions: chunk.rows is kSingle just if !is_ragged(),
  // and chunk.num_rows is the number of cells there, and else what the bounds say.
  void append(const Chunk& chunk);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const std::vector<std::uint64_t>& cell_shape() const noexcept {
    return cell_shape_;
  }
  [[nodiscard]] std::uint64_t cell_values() const noexcept { return cell_bytes_ / size_of(dtype_); }
  [[nodiscard]] std::uint64_t cell_bytes() const noexcept { return cell_bytes_; }
  [[nodiscard]] bool is_ragged() const noexcept { return is_ragged_; }
  [[nodiscard]] std::uint64_t num_rows() const noexcept { return first_rows_.back(); }
  // The longest row, in cells.
  [[nodiscard]] std::uint64_t longest() const noexcept { return longest_; }

  // The chunk of a row, and the row's number in it. Valid until the next chunk is appended.
  struct Place {
    const Chunk* chunk;
    std::uint64_t row;
  };

  // Returns the place of a row, and asks for the cache lines of its bounds: who finds many rows
  // before reading the first waits for memory once. Precondition: row < num_rows(). Takes O(1) time
  // where chunks have about equally many rows, else O(log(chunks)). Thread-safe.
  [[nodiscard]] Place find(std::uint64_t row) const noexcept;

  // Returns where a row lies. Precondition of a number: row < num_rows(). Thread-safe.
  [[nodiscard]] Row row(const Place& place) const noexcept;
  [[nodiscard]] Row row(std::uint64_t row) const noexcept { return this->row(find(row)); }

  // Writes the length of every row, in cells. Preconditions: lengths.size() == num_rows(), and T
  // holds longest().
  void lengths(std::span<std::int32_t> lengths) const;
  void lengths(std::span<std::int64_t> lengths) const;

  // "`input_ids` of `corpus.idx`", for errors.
  [[nodiscard]] std::string described() const;

 private:
  [[nodiscard]] std::size_t chunk_of(std::uint64_t row) const noexcept;
  template <class T>
  void write_lengths(std::span<T> lengths) const;

  std::string name_;
  std::string origin_;
  DType dtype_;
  std::vector<std::uint64_t> cell_shape_;
  std::uint64_t cell_bytes_;
  bool is_ragged_;
  std::uint64_t longest_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> first_rows_{0};  // Of each chunk, and the end.
};

}  // namespace evenstride
