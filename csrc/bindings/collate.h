// A collator of Python: with memory for its batches, and counts of what it cut.
#pragma once

#include <pybind11/typing.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/module.h"
#include "collate/collate.h"
#include "loader/slabs.h"

namespace evenstride {

// Key, source, column, type, bits of the padding value, whether padding comes first, start, and
// most tokens.
using OutputTuple = std::tuple<std::string, std::string, std::shared_ptr<Column>, std::string,
                               std::uint64_t, bool, std::uint64_t, std::uint64_t>;

struct PooledCollator {
  struct Truncated {
    std::atomic<std::uint64_t> samples{0};
    std::atomic<std::uint64_t> tokens{0};
  };

  PooledCollator(std::shared_ptr<const Collator> made, std::shared_ptr<SlabPool> slabs)
      : collator(std::move(made)), pool(std::move(slabs)), truncated(collator->outputs().size()) {}

  // Adds what was cut in a batch.
  void count(const Layout& layout) {
    for (std::size_t o = 0; o < truncated.size(); ++o) {
      truncated[o].samples += layout.arrays[o].truncated_samples;
      truncated[o].tokens += layout.arrays[o].truncated_tokens;
    }
  }

  std::shared_ptr<const Collator> collator;
  std::shared_ptr<SlabPool> pool;
  std::vector<Truncated> truncated;  // For each output.
};

using Counts = py::typing::Dict<py::str, py::int_>;

// Returns how much memory a pool uses, by name.
Counts to_dict(const SlabPool::Use& use);

}  // namespace evenstride
