// Counter-based random numbers: draw i of a stream is a pure function of (key, i).
//
// The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014, with Stafford's finaliser "Mix13") read at random access: its state is
// an arithmetic progression, so any draw is one multiplication and one finaliser away. Nothing here
// keeps state between calls, and nothing depends on the platform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/watch.h"

namespace evenstride {

inline constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

// Returns a bijective scramble of `value`: every output bit depends on every input bit.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

// Returns floor(a * b / 2^64). With a uniform in [0, 2^64), a value in [0, b) whose probability is
// off from 1 / b by less than 2^-64.
[[nodiscard]] constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

// An endless sequence of 64-bit draws, fixed by its key. Cheap to copy; every method is
// thread-safe.
class Stream {
 public:
  constexpr explicit Stream(std::uint64_t key) noexcept : key_(key) {}

  // Returns the stream of one epoch. (0, 1) and (1, 0) give unrelated streams.
  [[nodiscard]] static constexpr Stream of(std::uint64_t seed, std::uint64_t epoch) noexcept {
    return Stream(mix64(seed + kGoldenGamma)).substream(epoch);
  }

  // Returns draw `index`, uniform in [0, 2^64).
  [[nodiscard]] constexpr std::uint64_t operator()(std::uint64_t index) const noexcept {
    return mix64(key_ + (index + 1) * kGoldenGamma);
  }

  // Returns the stream with this name under the present one, unrelated to it and to its siblings.
  [[nodiscard]] constexpr Stream substream(std::uint64_t name) const noexcept {
    return Stream(mix64(key_ ^ mix64(name + 0xD1B54A32D192ED03)));
  }

  [[nodiscard]] constexpr std::uint64_t key() const noexcept { return key_; }

 private:
  std::uint64_t key_;
};

// Reads a stream draw by draw. Not thread-safe: give each thread its own.
class Draws {
 public:
  constexpr explicit Draws(Stream stream) noexcept : stream_(stream) {}

  // Returns the next draw, uniform in [0, 2^64).
  constexpr std::uint64_t next() noexcept { return stream_(index_++); }

  // Returns the next draw, uniform in [0, bound). Precondition: bound >= 1.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    return multiply_high(next(), bound);
  }

 private:
  Stream stream_;
  std::uint64_t index_ = 0;
};

// Permutes `items` uniformly (Fisher and Yates 1938, in the form of Durstenfeld 1964). O(items).
template <class Item>
void shuffle(std::span<Item> items, Draws draws, const Watch& watch = kUnwatched) {
  in_pieces(watch, 0, items.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = items.size() - begin; i > items.size() - end; --i) {
      std::swap(items[i - 1], items[static_cast<std::size_t>(draws.below(i))]);
    }
  });
}

}  // namespace evenstride
