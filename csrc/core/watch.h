// What those who do long work share with who waits for it: a request to stop, and how far it is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

namespace evenstride {

// Work that was asked to stop ends with this.
class Stopped : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "stopped"; }
};

// Thread-safe. A call takes about a nanosecond, but to `advance` waits for other threads' calls.
class Watch {
 public:
  // Asks the work to stop: it throws Stopped when it next looks, within a few tenths of a second.
  void stop() noexcept { is_stopped_.store(true, std::memory_order_relaxed); }

  // Throws Stopped if the work was asked to stop.
  void check() const {
    if (is_stopped_.load(std::memory_order_relaxed)) [[unlikely]] {
      throw Stopped();
    }
  }

  // Says how much work there is, or is more to be expected, in units that are those of `advance`.
  // The least that was said before still holds.
  void expect(std::uint64_t work) noexcept {
    if (expected_.load(std::memory_order_relaxed) < work) {
      expected_.store(work, std::memory_order_relaxed);
    }
  }

  // Counts work that has been done.
  void advance(std::uint64_t work) noexcept { done_.fetch_add(work, std::memory_order_relaxed); }

  // Returns how much of the work is done, in [0, 1].
  [[nodiscard]] double fraction() const noexcept {
    const auto expected = static_cast<double>(expected_.load(std::memory_order_relaxed));
    const auto done = static_cast<double>(done_.load(std::memory_order_relaxed));
    return expected == 0 ? 0.0 : std::min(1.0, done / expected);
  }

 private:
  std::atomic<bool> is_stopped_{false};
  std::atomic<std::uint64_t> expected_{0};
  std::atomic<std::uint64_t> done_{0};
};

// For work that nobody waits for.
inline const Watch kUnwatched;

// Steps of a loop between two checks: a millisecond or so of light work.
inline constexpr std::size_t kStepsPerCheck = std::size_t{1} << 18;

// Calls body(begin, end) for pieces that make up [begin, end) in order, of `piece` but for the
// last, and checks before each.
template <class Body>
void in_pieces(const Watch& watch, std::size_t begin, std::size_t end, Body&& body,
               std::size_t piece = kStepsPerCheck) {
  while (begin < end) {
    watch.check();
    const std::size_t next = begin + std::min(end - begin, piece);
    body(begin, next);
    begin = next;
  }
}

// The same, and counts `work` for every step that has been made.
template <class Body>
void in_counted_pieces(Watch& watch, std::size_t begin, std::size_t end, std::uint64_t work,
                       Body&& body, std::size_t piece = kStepsPerCheck) {
  in_pieces(
      watch, begin, end,
      [&](std::size_t from, std::size_t to) {
        body(from, to);
        watch.advance(work * (to - from));
      },
      piece);
}

// Checks once in so many steps of a loop that has no pieces.
class StepCheck {
 public:
  explicit StepCheck(const Watch& watch) : watch_(watch) {}

  void operator()(std::size_t steps = 1) {
    steps_ += steps;
    if (steps_ >= kStepsPerCheck) {
      steps_ = 0;
      watch_.check();
    }
  }

 private:
  const Watch& watch_;
  std::size_t steps_ = 0;
};

// Resizes as `values.resize(size)` does: to set a gigabyte for the first time takes a second.
template <class Vector>
void resize_in_pieces(Vector& values, std::size_t size, const Watch& watch) {
  values.reserve(size);
  in_pieces(watch, values.size(), size, [&](std::size_t, std::size_t end) { values.resize(end); });
}

}  // namespace evenstride
