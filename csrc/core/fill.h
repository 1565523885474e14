// The limits of a batch, and greedy filling: cutting a sequence of samples into batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace evenstride {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// What a batch may cost. Every value is at least 1; all but an unlimited `max_batch_size` are below
// 2^63.
struct FillLimits {
  std::uint64_t token_budget = 1;
  std::uint64_t max_batch_size = kUnlimited;
  std::uint64_t batch_size_multiple = 1;
  std::uint64_t pad_to_multiple_of = 1;
};

// Returns max(1, longest) rounded up to a multiple of `pad_to_multiple_of`. Precondition: longest is
// below 2^63, so that the result fits 64 bits.
[[nodiscard]] constexpr std::uint64_t width_of(std::uint64_t longest,
                                               std::uint64_t pad_to_multiple_of) noexcept {
  const std::uint64_t width = std::max<std::uint64_t>(1, longest);
  if (pad_to_multiple_of == 1) {  // A division a batch is felt in the time of a plan.
    return width;
  }
  return (width + pad_to_multiple_of - 1) / pad_to_multiple_of * pad_to_multiple_of;
}

// Returns how many samples a batch may hold whose longest sample has this length. At least 1: a
// sample that is too long for the budget is a batch of its own.
[[nodiscard]] constexpr std::uint64_t capacity_of(std::uint64_t longest,
                                                  const FillLimits& limits) noexcept {
  const std::uint64_t width = width_of(longest, limits.pad_to_multiple_of);
  // Division, because samples * width can overflow; in 32 bits where they do, because that is
  // twice as fast.
  const std::uint64_t admitted =
      (limits.token_budget | width) >> 32 == 0
          ? static_cast<std::uint32_t>(limits.token_budget) / static_cast<std::uint32_t>(width)
          : limits.token_budget / width;
  return std::clamp<std::uint64_t>(admitted, 1, limits.max_batch_size);
}

// One batch cut from a sequence: samples [begin, end), the longest of this length.
struct Cut {
  std::size_t begin;
  std::size_t end;
  std::uint64_t longest;
};

// Cuts `entries` (anything with a `length()`) into batches, from the front: each takes as many of
// the next samples as the limits allow. A batch that closes with more samples than
// `batch_size_multiple` is cut to the multiple, and the rest opens the next one.
//
// Calls emit(Cut) for each closed batch, and returns where the last, open one begins: it might take
// more if the sequence went on. O(entries), plus what is cut off to meet the multiple.
template <class Entry, class Emit>
std::size_t fill(std::span<const Entry> entries, const FillLimits& limits, Emit&& emit) {
  const std::uint64_t multiple = limits.batch_size_multiple;
  std::size_t begin = 0;
  std::uint64_t longest = 0;
  std::uint64_t capacity = capacity_of(0, limits);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t length = entries[i].length();
    const std::uint64_t samples = i - begin;
    std::uint64_t longest_with = longest;
    std::uint64_t capacity_with = capacity;
    if (length > longest) {
      longest_with = length;
      capacity_with = capacity_of(length, limits);
    }
    if (samples < capacity_with) {
      longest = longest_with;
      capacity = capacity_with;
      continue;
    }
    std::size_t end = i;
    if (multiple > 1 && samples > multiple) {
      end -= samples % multiple;
      if (end < i) {
        longest = 0;
        for (const Entry& entry : entries.subspan(begin, end - begin)) {
          longest = std::max<std::uint64_t>(longest, entry.length());
        }
      }
    }
    emit(Cut{begin, end, longest});
    begin = end;
    longest = entries[end].length();
    capacity = capacity_of(longest, limits);
    i = end;
  }
  return begin;
}

// Cuts all of `entries` as `fill` does, and closes the last batch too.
template <class Entry, class Emit>
void fill_all(std::span<const Entry> entries, const FillLimits& limits, Emit&& emit) {
  std::size_t open = fill(entries, limits, emit);
  while (open < entries.size()) {
    std::size_t end = entries.size();
    const std::uint64_t samples = end - open;
    if (samples > limits.batch_size_multiple) {
      end -= samples % limits.batch_size_multiple;
    }
    std::uint64_t longest = 0;
    for (const Entry& entry : entries.subspan(open, end - open)) {
      longest = std::max<std::uint64_t>(longest, entry.length());
    }
    emit(Cut{open, end, longest});
    open = end;
  }
}

}  // namespace evenstride
