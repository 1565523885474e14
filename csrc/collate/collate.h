// Gathers the rows of a batch and pads them into rectangles, all fields in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collate/column.h"
#include "collate/dtype.h"
#include "collate/pad.h"

namespace evenstride {

// What one key of a batch is made of. `column` also gives a mask, positions and lengths their rows.
struct Output {
  enum class Source : std::uint8_t {
    kValues,     // The values of the rows; shape (samples, width, ...), or (samples, ...) where the
                 // column is not ragged.
    kMask,       // 1 where there is a token, 0 in the padding; shape (samples, width).
    kPositions,  // 0, 1, ... over the tokens, 0 in the padding; shape (samples, width).
    kLengths,    // Cells taken of each row; shape (samples,).
  };

  std::string key;  // Stands in errors.
  Source source = Source::kValues;
  std::shared_ptr<const Column> column;
  DType dtype = DType::kInt64;
  std::uint64_t padding = 0;  // Of values: the padding's bits, in the low size_of(dtype) bytes.
  bool pads_left = false;
  // Of every row of a ragged column, the cells [start, start + max_length) are taken.
  std::uint64_t start = 0;
  std::uint64_t max_length = ~std::uint64_t{0};
  // Of values, if not null: a column of one integer a row, which says how many of the row's first
  // cells are its prompt, counted from the row's own beginning. Padding stands in their place.
  std::shared_ptr<const Column> prompt = nullptr;
};

// Where the outputs of one batch lie in its memory, and what was counted on the way.
struct Layout {
  struct Array {
    std::uint64_t offset = 0;  // In bytes, a multiple of 64.
    std::uint64_t width = 1;   // Cells of a row; 1 where the output has no width.
    std::uint64_t truncated_samples = 0;
    std::uint64_t truncated_tokens = 0;
  };

  std::uint64_t num_samples = 0;
  std::vector<Array> arrays;  // One an output.
  std::uint64_t bytes = 0;
};

// The rows of a batch that have been looked up. Reused from batch to batch by one thread.
struct BatchRows {
  // One column's part, cut to what is to be read.
  struct Reading {
    std::vector<Column::Place> places;
    std::vector<Row> rows;
    std::uint64_t width = 1;
    std::uint64_t truncated_samples = 0;
    std::uint64_t truncated_tokens = 0;
  };

  Layout layout;
  std::vector<std::uint64_t> numbers;  // Of the samples in the columns.
  std::vector<Reading> readings;       // One for each way of reading a column.
  // For each output that has a prompt, its cells in each row, at most those of the row.
  std::vector<std::vector<std::uint32_t>> prompts;
};

// Makes batches of samples. Immutable, so that any number of threads can share it.
class Collator {
 public:
  // A way of reading a column, which outputs share.
  struct Reading {
    const Column* column;
    std::uint64_t start;
    std::uint64_t max_length;
    bool takes_values;  // And not only lengths.
  };

  // What is fixed about an output.
  struct Recipe {
    std::size_t reading;
    Pad pad;
    std::uint64_t cell_values;  // Of a place of the output.
    bool checks;                // Whether a value may not fit.
  };

  // Sample i is row `rows[i]` of every column, or row i if there are no `rows`. The width of a
  // batch is its longest row, or 1 if that is longer, rounded up to a multiple of
  // pad_to_multiple_of. Throws std::invalid_argument if there is no output, columns differ in their
  // number of rows, an output's type cannot hold its column's, an entry of `rows` is outside the
  // columns, an output without values has a prompt, a prompt's column is ragged, of several values
  // a row, of floats or of bools, or pad_to_multiple_of is outside [1, 2^31). The memory of `rows`
  // must outlive the collator.
  Collator(std::vector<Output> outputs, std::optional<std::span<const std::int64_t>> rows,
           std::uint64_t pad_to_multiple_of);

  [[nodiscard]] const std::vector<Output>& outputs() const noexcept { return outputs_; }
  [[nodiscard]] std::uint64_t num_samples() const noexcept { return num_samples_; }
  [[nodiscard]] const std::vector<Reading>& readings() const noexcept { return readings_; }
  [[nodiscard]] const std::vector<Recipe>& recipes() const noexcept { return recipes_; }

  // Returns the most bytes of a batch of so many samples, or fewer, and so many tokens, padding
  // included, in every output that has a width.
  [[nodiscard]] std::uint64_t most_bytes(std::uint64_t num_samples, std::uint64_t num_tokens) const;

  // Looks up the rows of a batch and lays out its outputs. A negative sample counts from the end.
  // Throws std::out_of_range if a sample is outside [-num_samples, num_samples), std::range_error
  // if a prompt is negative, and std::length_error if there are 2^28 samples, a row of an output
  // has 2^31 values, or a batch has 2^62 bytes, or more. Asks for the cache lines at the beginning
  // of each row.
  void look_up(std::span<const std::int64_t> samples, BatchRows& batch) const;

  // Throws std::out_of_range, which says of item i of a batch, as text, that it is no sample.
  [[noreturn]] void throw_outside(std::size_t i, const std::string& sample) const;

  // Throws std::range_error, which names the column, its row and the value, if a value of a batch
  // that was looked up does not fit into its output.
  void check_fits(const BatchRows& batch) const;

  // Writes every value of every output of a batch that was looked up, each once, and nothing
  // between the outputs. `memory` has batch.layout.bytes bytes, at a multiple of 64. Uses up to
  // num_threads threads where the batch is large enough to pay for them; they write the same.
  // Throws what check_fits does, with part of the memory written.
  void write(const BatchRows& batch, std::byte* memory, int num_threads = 1) const;

 private:
  [[nodiscard]] Recipe recipe_of(const Output& output);
  [[nodiscard]] std::uint64_t row_of(std::span<const std::int64_t> samples, std::size_t i) const;
  void read(const Reading& reading, BatchRows::Reading& into) const;
  void read_prompts(BatchRows& batch) const;
  void lay_out(BatchRows& batch) const;
  void write_output(std::size_t o, const BatchRows& batch, std::byte* memory, std::uint64_t begin,
                    std::uint64_t end) const;

  std::vector<Output> outputs_;
  std::optional<std::span<const std::int64_t>> rows_;
  std::uint64_t num_samples_ = 0;
  std::uint64_t pad_to_multiple_of_;
  std::vector<Reading> readings_;
  std::vector<Recipe> recipes_;  // For each output.
};

}  // namespace evenstride
