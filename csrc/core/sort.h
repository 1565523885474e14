// Sorting by whole numbers: samples by length, batches by cost.
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

// Sorts `items` by key_of(item), a std::uint64_t, stably: equal keys keep their order, in both
// directions.
//
// A radix sort from the least significant digit, on the distance to the least key (going up) or to
// the greatest (going down). O(items * bytes of the range). Precondition: `scratch` is at least as
// long as `items` and does not overlap it. If it is stopped, the order is undefined. Thread-safe
// for disjoint spans.
template <class Item, class KeyOf>
void sort_by(std::span<Item> items, std::span<Item> scratch, Direction direction, KeyOf&& key_of,
             const Watch& watch = kUnwatched) {
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t greatest = 0;
  const auto for_each_of = [&watch](std::span<const Item> all, auto&& body) {
    in_pieces(watch, 0, all.size(), [&](std::size_t begin, std::size_t end) {
      for (const Item& item : all.subspan(begin, end - begin)) {
        body(item);
      }
    });
  };
  for_each_of(items, [&](const Item& item) {
    least = std::min<std::uint64_t>(least, key_of(item));
    greatest = std::max<std::uint64_t>(greatest, key_of(item));
  });
  if (greatest <= least) {
    return;
  }
  const auto distance = [&](const Item& item) {
    return direction == Direction::kUp ? key_of(item) - least : greatest - key_of(item);
  };
  const int bits = static_cast<int>(std::bit_width(greatest - least));
  const int passes = (bits + 7) / 8;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): the two keys differ, in a bit at least.
  const int digit_bits = (bits + passes - 1) / passes;  // Even digits need the fewest counters.
  const std::uint64_t mask = (std::uint64_t{1} << digit_bits) - 1;
  std::span<Item> from = items;
  std::span<Item> to = scratch.first(items.size());
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * digit_bits;
    std::array<std::size_t, 257> starts{};
    for_each_of(from, [&](const Item& item) { ++starts[((distance(item) >> shift) & mask) + 1]; });
    for (std::size_t digit = 1; digit <= mask; ++digit) {
      starts[digit] += starts[digit - 1];
    }
    for_each_of(from,
                [&](const Item& item) { to[starts[(distance(item) >> shift) & mask]++] = item; });
    std::swap(from, to);
  }
  if (from.data() != items.data()) {
    std::copy(from.begin(), from.end(), items.begin());
  }
}

// Sorts `entries` by length, as `sort_by` does.
template <class Entry>
void sort_by_length(std::span<Entry> entries, std::span<Entry> scratch, Direction direction,
                    const Watch& watch = kUnwatched) {
  sort_by(entries, scratch, direction, [](const Entry& entry) { return entry.length(); }, watch);
}

}  // namespace evenstride
