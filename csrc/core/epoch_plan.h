// What a plan is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "core/memory.h"

namespace evenstride {

// An array whose elements nothing sets before they are written.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t size)
      : data_(std::make_unique_for_overwrite<T[]>(size)), size_(size) {
    advise_huge_pages(data_.get(), size * sizeof(T));
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T* data() noexcept { return data_.get(); }
  [[nodiscard]] const T* data() const noexcept { return data_.get(); }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0;
};

// Batch i holds samples indices[offsets[i]] to indices[offsets[i + 1] - 1]; rank r of step t has
// batch t * num_replicas + r.
struct EpochPlan {
  std::variant<Buffer<std::uint32_t>, Buffer<std::uint64_t>> indices;
  Buffer<std::int64_t> offsets;
  Buffer<std::int16_t> buckets;
  std::variant<Buffer<std::int32_t>, Buffer<std::int64_t>> widths;
  std::vector<std::uint64_t> repeats;  // Indices of samples that are there once more.
  std::vector<std::uint64_t> dropped;  // Indices of samples that drop_last left out.
  std::uint64_t num_steps = 0;
};

}  // namespace evenstride
