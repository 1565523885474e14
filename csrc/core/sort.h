// Sorting samples by length.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/watch.h"

namespace evenstride {

enum class Direction { kUp, kDown };

// Sorts `entries` by length, stably: equal lengths keep their order, in both directions.
//
// A radix sort from the least significant digit, on the distance to the shortest (going up) or to
// the longest (going down). O(entries * bytes of the range). Precondition: `scratch` is at least as
// long as `entries` and does not overlap it. If it is stopped, the order is undefined. Thread-safe
// for disjoint spans.
template <class Entry>
void sort_by_length(std::span<Entry> entries, std::span<Entry> scratch, Direction direction,
                    const Watch& watch = kUnwatched) {
  std::uint64_t shortest = ~std::uint64_t{0};
  std::uint64_t longest = 0;
  const auto for_each_of = [&watch](std::span<const Entry> all, auto&& body) {
    in_pieces(watch, 0, all.size(), [&](std::size_t begin, std::size_t end) {
      for (const Entry& entry : all.subspan(begin, end - begin)) {
        body(entry);
      }
    });
  };
  for_each_of(entries, [&](const Entry& entry) {
    shortest = std::min<std::uint64_t>(shortest, entry.length());
    longest = std::max<std::uint64_t>(longest, entry.length());
  });
  if (longest <= shortest) {
    return;
  }
  const auto key = [=](const Entry& entry) {
    return direction == Direction::kUp ? entry.length() - shortest : longest - entry.length();
  };
  const int bits = static_cast<int>(std::bit_width(longest - shortest));
  const int passes = (bits + 7) / 8;
  const int digit_bits = (bits + passes - 1) / passes;  // Even digits need the fewest counters.
  const std::uint64_t mask = (std::uint64_t{1} << digit_bits) - 1;
  std::span<Entry> from = entries;
  std::span<Entry> to = scratch.first(entries.size());
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * digit_bits;
    std::array<std::size_t, 257> starts{};
    for_each_of(from, [&](const Entry& entry) { ++starts[((key(entry) >> shift) & mask) + 1]; });
    for (std::size_t digit = 1; digit <= mask; ++digit) {
      starts[digit] += starts[digit - 1];
    }
    for_each_of(from,
                [&](const Entry& entry) { to[starts[(key(entry) >> shift) & mask]++] = entry; });
    std::swap(from, to);
  }
  if (from.data() != entries.data()) {
    std::copy(from.begin(), from.end(), entries.begin());
  }
}

}  // namespace evenstride
