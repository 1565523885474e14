// A sample on its way through a plan: its length beside its index, in as few bytes as will do.
#pragma once

#include <cstdint>

namespace evenstride {

// 8 bytes: for fewer than 2^32 samples, all shorter than 2^32.
class PackedEntry {
 public:
  using Index = std::uint32_t;

  PackedEntry() = default;
  PackedEntry(std::uint64_t length, std::uint64_t index) : bits_(length << 32 | index) {}

  [[nodiscard]] std::uint64_t length() const noexcept { return bits_ >> 32; }
  [[nodiscard]] Index index() const noexcept { return static_cast<Index>(bits_); }

 private:
  std::uint64_t bits_;
};

// 16 bytes: for everything else.
class WideEntry {
 public:
  using Index = std::uint64_t;

  WideEntry() = default;
  WideEntry(std::uint64_t length, std::uint64_t index) : length_(length), index_(index) {}

  [[nodiscard]] std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] Index index() const noexcept { return index_; }

 private:
  std::uint64_t length_;
  std::uint64_t index_;
};

}  // namespace evenstride
