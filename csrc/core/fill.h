// The limits of a batch, and greedy filling: cutting a sequence of samples into batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace evenstride {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// What a batch may cost. Every value is at least 1, and below 2^63 unless it is kUnlimited.
struct FillLimits {
  std::uint64_t token_budget = 1;
  std::uint64_t max_batch_size = kUnlimited;
  std::uint64_t batch_size_multiple = 1;
  std::uint64_t pad_to_multiple_of = 1;
  std::uint64_t admitted_end = kUnlimited;  // Samples this long or longer share no batch.
};

// Returns max(1, longest) rounded up to a multiple of `pad_to_multiple_of`. Precondition: longest
// is below 2^63, so that the result fits 64 bits.
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

// Which samples a batch admits, by how many it then has.
class LengthBounds {
 public:
  // Takes O(min(max_samples, samples of the largest batch)) time, and at most 4,096 divisions.
  LengthBounds(const FillLimits& limits, std::size_t max_samples) : limits_(limits) {
    constexpr std::uint64_t kMostTabled = 4096;
    const std::uint64_t largest =
        std::min(limits.max_batch_size,
                 std::max<std::uint64_t>(1, limits.token_budget / limits.pad_to_multiple_of));
    const std::uint64_t tabled = std::min({largest + 1, std::uint64_t{max_samples}, kMostTabled});
    bounds_ = {0, kUnlimited};  // Any sample may be alone.
    for (std::uint64_t samples = 2; samples <= tabled; ++samples) {
      bounds_.push_back(bound_of(samples));
    }
    size_ = bounds_.size();
  }

  // Returns the bound of a batch's lengths: it may have this many samples if all are shorter.
  // Precondition: samples >= 1.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t samples) const noexcept {
    return samples < size_ ? bounds_[static_cast<std::size_t>(samples)] : bound_of(samples);
  }

  [[nodiscard]] const FillLimits& limits() const noexcept { return limits_; }

 private:
  [[nodiscard]] std::uint64_t bound_of(std::uint64_t samples) const noexcept {
    if (samples > limits_.max_batch_size) {
      return 0;
    }
    // Division, because samples * width can overflow.
    const std::uint64_t widest =
        limits_.token_budget / samples / limits_.pad_to_multiple_of * limits_.pad_to_multiple_of;
    return widest == 0 ? 0 : std::min(widest + 1, limits_.admitted_end);
  }

  FillLimits limits_;
  std::vector<std::uint64_t> bounds_;
  std::size_t size_ = 0;  // Of `bounds_`, which would take it from the distance of two pointers.
};

// One batch cut from a sequence: samples [begin, end), the longest of this length.
struct Cut {
  std::size_t begin;
  std::size_t end;
  std::uint64_t longest;
};

// Returns the batch of samples [begin, end).
template <class Entry>
[[nodiscard]] Cut cut_at(std::span<const Entry> entries, std::size_t begin, std::size_t end) {
  std::uint64_t longest = 0;
  for (const Entry& entry : entries.subspan(begin, end - begin)) {
    longest = std::max<std::uint64_t>(longest, entry.length());
  }
  return {begin, end, longest};
}

// Cuts `entries` (anything with a `length()`) into batches, from the front: each takes as many of
// the next samples as the limits allow. A batch that closes with more samples than
// `batch_size_multiple` is cut to the multiple, and the rest opens the next one.
//
// Calls emit(Cut) for each closed batch, and returns where the last, open one begins: it might take
// more if the sequence went on. O(entries), plus what is cut off to meet the multiple.
template <class Entry, class Emit>
std::size_t fill(std::span<const Entry> entries, const LengthBounds& bounds, Emit&& emit) {
  const std::uint64_t multiple = bounds.limits().batch_size_multiple;
  std::size_t begin = 0;
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // No branch on whether the sample is the longest so far: that would be guessed wrong several
    // times a batch, which costs more than all else.
    const std::uint64_t longest_with = std::max<std::uint64_t>(longest, entries[i].length());
    if (longest_with < bounds(i - begin + 1)) {
      longest = longest_with;
      continue;
    }
    const std::size_t rest = multiple > 1 && i - begin > multiple ? (i - begin) % multiple : 0;
    emit(rest == 0 ? Cut{begin, i, longest} : cut_at(entries, begin, i - rest));
    begin = i - rest;
    i = begin;
    longest = entries[begin].length();
  }
  return begin;
}

// Cuts all of `entries` as `fill` does, and closes the last batch too.
template <class Entry, class Emit>
void fill_all(std::span<const Entry> entries, const LengthBounds& bounds, Emit&& emit) {
  const std::uint64_t multiple = bounds.limits().batch_size_multiple;
  for (std::size_t open = fill(entries, bounds, emit); open < entries.size();) {
    const std::size_t samples = entries.size() - open;
    const std::size_t end = entries.size() - (samples > multiple ? samples % multiple : 0);
    emit(cut_at(entries, open, end));
    open = end;
  }
}

}  // namespace evenstride
