// How much memory to take for so many bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <new>

namespace evenstride {

// Returns at least `bytes`, at least a page and at most a quarter more, so that batches of a like
// size fit each other's memory. Throws std::bad_alloc if no memory has so many bytes.
[[nodiscard]] inline std::size_t capacity_for(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kMost = std::size_t{1} << 62;
  if (bytes > kMost) {
    throw std::bad_alloc();
  }
  const std::size_t grain = std::max(std::bit_ceil(bytes) / 8, kPage);
  return std::max((bytes + grain - 1) / grain * grain, kPage);
}

}  // namespace evenstride
