// Batches on their way to a device: ragged rows in one slab, in the types that they are stored in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collate/collate.h"
#include "cuda/pad_batch.h"

namespace evenstride {

// How a batch lies in its slab: first a table of rows for each group of outputs and a table of
// prompts for each output that has one, then the rows themselves.
struct StagedBatch {
  Layout layout;                  // Of the outputs.
  PadBatch pad{};                 // Of the launch, less the addresses of slab and outputs.
  std::uint64_t table_bytes = 0;  // Of the tables.
  std::uint64_t bytes = 0;        // Of the slab.

  // Samples times the width of the widest output.
  [[nodiscard]] std::uint64_t padded_tokens() const;
};

// Packs the rows of batches. Immutable, so that any number of threads can share it.
class Staging {
 public:
  // Throws std::invalid_argument if the collator has more than kMostFields outputs.
  explicit Staging(std::shared_ptr<const Collator> collator);

  [[nodiscard]] const Collator& collator() const noexcept { return *collator_; }

  // Returns the most bytes of a slab of so many samples, or fewer, and so many tokens.
  [[nodiscard]] std::uint64_t most_bytes(std::uint64_t num_samples, std::uint64_t num_tokens) const;

  // Lays out a batch that was looked up. Throws std::length_error if its slab would have 2^36
  // bytes, or a row 2^32 tokens, or more.
  void lay_out(const BatchRows& rows, StagedBatch& batch) const;

  // Writes the slab of a batch that was laid out, of batch.bytes bytes at a multiple of
  // kStagingAlignment: tables and rows, and nothing in between. Throws what Collator::write does,
  // before anything is written.
  void write(const BatchRows& rows, const StagedBatch& batch, std::byte* slab) const;

 private:
  // What the outputs of a group have in common.
  struct Group {
    std::size_t reading;  // Of the collator.
    bool pads_left;
    bool takes_values;
    std::vector<std::size_t> outputs;
  };

  // Returns the group that an output joins.
  [[nodiscard]] Group& group_of(std::size_t o);

  std::shared_ptr<const Collator> collator_;
  std::vector<Group> groups_;
};

}  // namespace evenstride
