// Random batches on their way to a device, and what has to come out there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collate/collate.h"
#include "cuda/staging.h"
#include "ragged.h"
#include "samples.h"

namespace evenstride::testing {

// Rows of random values, and the batches that are made of them: values that are padded on the
// right, on the left, their mask and their lengths.
class Corpus {
 public:
  struct Made {
    BatchRows rows;
    StagedBatch staged;
    std::vector<std::byte> expected;  // Of the outputs.

    [[nodiscard]] std::size_t bytes() const { return staged.layout.bytes; }
  };

  Corpus(std::uint64_t seed, std::uint64_t longest) {
    Random random(seed);
    field_.dtype = DType::kInt32;
    for (int row = 0; row < 40; ++row) {
      std::vector<std::uint64_t>& values = field_.rows.emplace_back(random.below(longest + 1));
      std::ranges::generate(values, [&] { return random.below(1 << 30); });
    }
    field_.column = std::make_shared<Column>("ids", "corpus", field_.dtype, field_.cell_shape,
                                             field_.is_ragged);
    append_chunk(field_, 0, field_.rows.size(), Chunk::Rows::kOffsets,
                 PackedIntegers::Type::kInt64);
    const std::vector<Output> outputs = {
        {.key = "ids", .column = field_.column, .dtype = DType::kInt64, .padding = 7},
        {.key = "left", .column = field_.column, .dtype = DType::kInt32, .pads_left = true},
        {.key = "mask",
         .source = Output::Source::kMask,
         .column = field_.column,
         .dtype = DType::kBool},
        {.key = "lengths", .source = Output::Source::kLengths, .column = field_.column},
    };
    collator_ = std::make_shared<const Collator>(outputs, std::nullopt, 1);
    staging_.emplace(collator_);
  }

  [[nodiscard]] std::shared_ptr<const Collator> collator() const { return collator_; }

  [[nodiscard]] Made make(Random& random, std::uint64_t most_samples) const {
    std::vector<std::int64_t> samples(random.below(most_samples + 1));
    std::ranges::generate(
        samples, [&] { return static_cast<std::int64_t>(random.below(field_.rows.size())); });
    Made made;
    staging_->collator().look_up(samples, made.rows);
    staging_->lay_out(made.rows, made.staged);
    Guarded memory(made.bytes());
    staging_->collator().write(made.rows, memory.data());
    made.expected.assign(memory.bytes().begin(), memory.bytes().end());
    return made;
  }

  void write(const Made& made, std::byte* slab) const {
    staging_->write(made.rows, made.staged, slab);
  }

  // Returns whether memory holds the outputs. What is between them is not theirs.
  [[nodiscard]] bool matches(const Made& made, const std::vector<std::byte>& memory) const {
    const Layout& layout = made.staged.layout;
    for (std::size_t o = 0; o < layout.arrays.size(); ++o) {
      const std::uint64_t bytes = layout.num_samples * layout.arrays[o].width *
                                  size_of(staging_->collator().outputs()[o].dtype);
      const auto begin = static_cast<std::ptrdiff_t>(layout.arrays[o].offset);
      const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
      if (!std::equal(memory.begin() + begin, memory.begin() + end,
                      made.expected.begin() + begin)) {
        return false;
      }
    }
    return true;
  }

 private:
  Field field_;
  std::shared_ptr<const Collator> collator_;
  std::optional<Staging> staging_;
};

}  // namespace evenstride::testing
