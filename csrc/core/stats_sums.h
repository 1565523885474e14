// Sums that statistics are made of: saturating integers, sets of shapes, correlations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/fill.h"
#include "core/random.h"

namespace evenstride {

[[nodiscard]] constexpr std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) noexcept {
  return a > kUnlimited - b ? kUnlimited : a + b;
}

[[nodiscard]] constexpr std::uint64_t multiply_saturating(std::uint64_t a,
                                                          std::uint64_t b) noexcept {
  return multiply_high(a, b) == 0 ? a * b : kUnlimited;
}

// Returns sum / count, and exactly what all values are if they are equal. Precondition: count >= 1.
[[nodiscard]] constexpr double mean_of(std::uint64_t sum, std::uint64_t count) noexcept {
  const std::uint64_t whole = sum / count;
  const std::uint64_t rest = sum % count;
  return static_cast<double>(whole) + static_cast<double>(rest) / static_cast<double>(count);
}

// A set of shapes. An open table, because a plan asks it once a batch and nearly always hits.
class Shapes {
 public:
  // Precondition: samples >= 1, which is what marks a slot as taken.
  void insert(std::uint64_t samples, std::uint64_t width) {
    std::size_t slot = mix64(samples * kGoldenGamma + width) & (slots_.size() - 1);
    while (slots_[slot].samples != 0) {
      if (slots_[slot].samples == samples && slots_[slot].width == width) {
        return;
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = {samples, width};
    if (++size_ * 2 > slots_.size()) {
      std::vector<Shape> old(slots_.size() * 2);
      old.swap(slots_);
      size_ = 0;
      insert_all(old);
    }
  }

  void insert_all(const Shapes& other) { insert_all(other.slots_); }

  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  struct Shape {
    std::uint64_t samples = 0;
    std::uint64_t width = 0;
  };

  void insert_all(const std::vector<Shape>& shapes) {
    for (const Shape& shape : shapes) {
      if (shape.samples != 0) {
        insert(shape.samples, shape.width);
      }
    }
  }

  std::vector<Shape> slots_ = std::vector<Shape>(1024);
  std::uint64_t size_ = 0;
};

// Sums over pairs (x, y), each less a centre that the caller chooses.
struct PairSums {
  double n = 0;
  double x = 0;
  double y = 0;
  double xx = 0;
  double yy = 0;
  double xy = 0;

  void add(double dx, double dy) {
    n += 1;
    x += dx;
    y += dy;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }

  void add(const PairSums& other) {
    n += other.n;
    x += other.x;
    y += other.y;
    xx += other.xx;
    yy += other.yy;
    xy += other.xy;
  }

  // Returns the correlation about the centres, or about the means; NaN if a variance is 0.
  [[nodiscard]] double correlation_about_centres() const { return correlation(xx, yy, xy); }
  [[nodiscard]] double correlation_about_means() const {
    return correlation(n * xx - x * x, n * yy - y * y, n * xy - x * y);
  }

 private:
  static double correlation(double xx, double yy, double xy) {
    return xx > 0 && yy > 0 ? std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0)
                            : std::numeric_limits<double>::quiet_NaN();
  }
};

}  // namespace evenstride
