// The kernel as a host runs it: every tile and lane of a batch, in any order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "cuda/pad_batch.h"
#include "cuda/pad_tile.h"
#include "cuda/staging.h"
#include "ragged.h"

namespace evenstride::testing {

// Writes, and counts the writes of each byte. Refuses those outside the outputs.
struct CountingStore {
  template <class T>
  static void put(T* address, T value) {
    *address = value;
    const auto first = static_cast<std::size_t>(reinterpret_cast<std::byte*>(address) - begin);
    for (std::size_t byte = first; byte < first + sizeof(T); ++byte) {
      ++writes.at(byte);
    }
  }

  static inline std::byte* begin = nullptr;
  static inline std::vector<std::uint32_t> writes;
};

// Runs the body for every lane of every tile, in random order.
template <std::uint32_t kLanes, class Store>
void emulate(Random& random, const PadBatch& batch) {
  struct Part {
    const PadGroup* group;
    std::uint32_t row;
    std::uint32_t tile;
    std::uint32_t lane;
  };
  std::vector<Part> parts;
  for (const PadGroup& group : std::span(batch.groups).first(batch.num_groups)) {
    for (std::uint32_t row = 0; row < batch.num_rows; ++row) {
      for (std::uint32_t tile = 0; tile < group.tiles; ++tile) {
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
          parts.push_back({&group, row, tile, lane});
        }
      }
    }
  }
  for (std::size_t i = parts.size(); i > 1; --i) {
    std::swap(parts[i - 1], parts[random.below(i)]);
  }
  for (const Part& part : parts) {
    pad_tile<kLanes, Store>(batch, *part.group, part.row, part.tile, part.lane);
  }
}

// Memory of exactly this size at a multiple of 64, so that a sanitizer sees who reads beside it.
class ExactMemory {
 public:
  explicit ExactMemory(std::span<const std::byte> bytes)
      : memory_(static_cast<std::byte*>(::operator new(bytes.size(), kAlignment))) {
    std::ranges::copy(bytes, memory_.get());
  }
  [[nodiscard]] const std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::unique_ptr<std::byte, Delete> memory_;
};

}  // namespace evenstride::testing
