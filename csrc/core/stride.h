// `stride`: every bucket in steps of its own, evenly over the epoch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/threads.h"

namespace evenstride {

// The places of one bucket's steps in the epoch. Every method is thread-safe and takes O(1) time.
//
// Step i of n has the place (i + phase + jitter * u) / n, kept in [0, 1]; the phase in [0, 1) is
// drawn once, u in [-1, 1) for every step. Places are whole numbers of 2^-64, from integer
// arithmetic alone, and too low by about n / 2^64 at most:
//
//   place = min(max(0, i * 2^31 + phase + offset) * floor((2^64 - 1) / n) >> 31, 2^64 - 2)
//
// with phase = stream(0) >> 33 and offset = floor(stream(i + 1) * 2 * jitter / 2^64) - jitter.
class Stride {
 public:
  // Preconditions: num_steps in [1, 2^32), jitter in [0, 2^30), which stands for [0, 1/2).
  Stride(std::uint64_t num_steps, std::uint32_t jitter, Stream stream) noexcept
      : stream_(stream),
        num_steps_(num_steps),
        reciprocal_(~std::uint64_t{0} / num_steps),
        earliest_(static_cast<std::int64_t>(stream(0) >> (64 - kFractionBits)) - jitter),
        jitter_range_(std::uint64_t{2} * jitter) {}

  // Returns the place of this step; never lower than that of the step before.
  [[nodiscard]] std::uint64_t place(std::uint64_t step) const noexcept {
    const std::uint64_t drawn = multiply_high(stream_(step + 1), jitter_range_);
    const auto strides = static_cast<std::int64_t>((step << kFractionBits) + drawn) + earliest_;
    const Wide place =
        (Wide{static_cast<std::uint64_t>(std::max<std::int64_t>(strides, 0))} * reciprocal_) >>
        kFractionBits;
    return static_cast<std::uint64_t>(std::min<Wide>(place, kLastPlace));
  }

  // Returns the first step whose place is at least `bound`; num_steps if there is none.
  [[nodiscard]] std::uint64_t first_from(std::uint64_t bound) const noexcept {
    // A step is displaced by less than 1.5 strides, so all before this one are below the bound.
    std::uint64_t step = std::max<std::uint64_t>(multiply_high(bound, num_steps_), 1) - 1;
    while (step < num_steps_ && place(step) < bound) {
      ++step;
    }
    return step;
  }

  [[nodiscard]] std::uint64_t num_steps() const noexcept { return num_steps_; }

 private:
  __extension__ using Wide = unsigned __int128;

  static constexpr unsigned kFractionBits = 31;
  static constexpr std::uint64_t kLastPlace = 0xFFFF'FFFF'FFFF'FFFE;

  Stream stream_;
  std::uint64_t num_steps_;
  std::uint64_t reciprocal_;
  std::int64_t earliest_;  // Of step 0, in strides: phase - jitter.
  std::uint64_t jitter_range_;
};

// Returns the labels of all steps by rising place, those in one place by label. The places of
// bucket k come from stream.substream(k).
//
// Before place x, a bucket with n steps, phase p and jitter j has between x * n - p - j and
// x * n + 1 - p + j steps. So, q being shares, the prefix discrepancy of bucket k is at most
// (1 - q_k) * (1 - p_k + j) + q_k * (sum over the others of p + j), or the same with every p turned
// into 1 - p, if that is greater.
//
// The epoch is cut into 2^slice_bits slices of places, which the team's threads order one by one;
// neither the slices nor the threads change the result. Takes O(T + K * 2^slice_bits) time for T
// steps in K buckets. Thread-safe, but for the team.
//
// Preconditions: at most 2^16 buckets, at most 2^32 - 1 steps, jitter in [0, 2^30), and slice_bits
// in [0, 32).
[[nodiscard]] std::vector<std::uint16_t> stride_order(
    std::span<const std::uint64_t> steps_per_bucket, std::uint32_t jitter, Stream stream,
    unsigned slice_bits, Team& team);

// Returns the slice_bits that suit: slices of a few thousand steps, which stay in the nearest
// caches, or of several steps a bucket where that is more; one slice for fewer than 2,048 steps.
[[nodiscard]] unsigned stride_slice_bits(std::uint64_t num_steps, std::size_t num_buckets) noexcept;

}  // namespace evenstride
