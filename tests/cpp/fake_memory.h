// Memory that stands in for a device's, and pinned memory of the host: who may touch what.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace evenstride::testing {

// Memory of the host that stands in for a device's, between borders that show who writes beside it.
// What was freed is kept, so that its addresses are never met again. Not thread-safe.
class FakeMemory {
 public:
  static constexpr std::byte kUnwritten{0xDB};
  static constexpr std::byte kFreed{0xDD};

  std::uint64_t allocate(std::size_t bytes) {
    Block block{.bytes = bytes, .is_alive = true, .storage = {}};
    block.storage.assign(bytes + 3 * kBorder, kBorderByte);
    const auto begin = reinterpret_cast<std::uintptr_t>(block.storage.data());
    const std::uint64_t address = (begin + 2 * kBorder - 1) / kBorder * kBorder;
    std::memset(reinterpret_cast<void*>(address), static_cast<int>(kUnwritten), bytes);
    blocks_.emplace(address, std::move(block));
    ++num_alive_;
    return address;
  }

  // Returns whether this is the beginning of memory that is allocated.
  bool free(std::uint64_t address) {
    const auto found = blocks_.find(address);
    if (found == blocks_.end() || !found->second.is_alive) {
      return false;
    }
    found->second.is_alive = false;
    std::memset(reinterpret_cast<void*>(address), static_cast<int>(kFreed), found->second.bytes);
    --num_alive_;
    return true;
  }

  // Returns whether these bytes are allocated, as one block.
  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t bytes) const {
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) {
      return false;
    }
    const auto& [begin, block] = *std::prev(after);
    return block.is_alive && address + bytes <= begin + block.bytes;
  }

  [[nodiscard]] std::size_t num_alive() const { return num_alive_; }

  // Returns whether nobody has written beside a block, or into one that was freed.
  [[nodiscard]] bool is_intact() const {
    return std::ranges::all_of(blocks_, [](const auto& entry) {
      const auto& [address, block] = entry;
      const auto* const begin = reinterpret_cast<const std::byte*>(address);
      const auto is_border = [](std::byte byte) { return byte == kBorderByte; };
      const auto is_freed = [](std::byte byte) { return byte == kFreed; };
      return std::all_of(begin - kBorder, begin, is_border) &&
             std::all_of(begin + block.bytes, begin + block.bytes + kBorder, is_border) &&
             (block.is_alive || std::all_of(begin, begin + block.bytes, is_freed));
    });
  }

 private:
  static constexpr std::size_t kBorder = 256;
  static constexpr std::byte kBorderByte{0xA5};

  struct Block {
    std::size_t bytes;
    bool is_alive;
    std::vector<std::byte> storage;
  };

  std::map<std::uint64_t, Block> blocks_;
  std::size_t num_alive_ = 0;
};

// Ranges of the host's memory that are pinned. Not thread-safe.
class FakePins {
 public:
  // Returns whether none of it was pinned before.
  bool add(const void* memory, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const auto after = pins_.lower_bound(begin + bytes);
    if (after != pins_.begin() && std::prev(after)->first + std::prev(after)->second > begin) {
      return false;
    }
    pins_.emplace(begin, bytes);
    return true;
  }
  bool remove(const void* memory) {
    return pins_.erase(reinterpret_cast<std::uintptr_t>(memory)) == 1;
  }
  [[nodiscard]] bool holds(const void* memory, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const auto after = pins_.upper_bound(begin);
    return after != pins_.begin() &&
           begin + bytes <= std::prev(after)->first + std::prev(after)->second;
  }
  [[nodiscard]] std::size_t size() const { return pins_.size(); }

 private:
  std::map<std::uintptr_t, std::size_t> pins_;
};

}  // namespace evenstride::testing
