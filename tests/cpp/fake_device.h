// What a device does: copies and the kernel, in pieces, on memory that it checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/pad_batch.h"
#include "cuda/pad_tile.h"
#include "fake_memory.h"
#include "fake_streams.h"

namespace evenstride::testing {

// Not thread-safe.
class FakeDevice {
 public:
  struct Grid {
    unsigned x;
    unsigned y;
    unsigned threads;  // Of a block.
  };

  FakeDevice(FakeSchedule schedule, std::uint64_t seed, bool allows_any_output)
      : streams_(schedule, seed), allows_any_output_(allows_any_output) {}

  FakeStreams& streams() { return streams_; }
  FakeMemory& memory() { return memory_; }
  FakePins& pins() { return pins_; }

  void add_fault(std::string sentence) { faults_.push_back(std::move(sentence)); }

  [[nodiscard]] std::vector<std::string> faults() const {
    std::vector<std::string> faults = faults_;
    if (!memory_.is_intact()) {
      faults.emplace_back("Somebody wrote beside memory, or into memory that was freed.");
    }
    return faults;
  }

  // Returns whether the memory is as it should be, now; it is looked at again when the copy runs.
  bool copy(FakeStreams::Stream stream, std::uint64_t to, const void* from, std::size_t bytes) {
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
      streams_.add(stream, [this, to, from, bytes, piece] {
        if (may_copy(to, from, bytes)) {
          const std::size_t begin = bytes * piece / kPieces;
          const std::size_t end = bytes * (piece + 1) / kPieces;
          std::memcpy(reinterpret_cast<std::byte*>(to) + begin,
                      static_cast<const std::byte*>(from) + begin, end - begin);
        }
      });
    }
    return may_copy(to, from, bytes);
  }

  // Returns whether the kernel can run on such a grid.
  bool launch(FakeStreams::Stream stream, const PadBatch& batch, Grid grid) {
    if (grid.x == 0 || grid.y != batch.num_groups || grid.threads != 8 * kLanes) {
      add_fault("The kernel was launched on a wrong grid.");
      return false;
    }
    const auto parts = std::make_shared<const std::vector<Part>>(parts_of(batch, grid));
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
      streams_.add(stream, [this, batch, parts, piece] {
        for (std::size_t i = parts->size() * piece / kPieces;
             i < parts->size() * (piece + 1) / kPieces; ++i) {
          const Part& part = (*parts)[i];
          const PadGroup& group = batch.groups[part.group];
          if (may_pad(batch, group, part.row)) {
            pad_tile<kLanes>(batch, group, part.row, part.tile, part.lane);
          }
        }
      });
    }
    return true;
  }

 private:
  static constexpr std::size_t kPieces = 3;
  static constexpr std::uint32_t kLanes = 32;

  struct Part {
    std::uint32_t group;
    std::uint32_t row;
    std::uint32_t tile;
    std::uint32_t lane;
  };

  // Returns what all threads of a grid do, in random order.
  std::vector<Part> parts_of(const PadBatch& batch, Grid grid) {
    std::vector<Part> parts;
    const std::uint32_t num_warps = grid.x * (grid.threads / kLanes);
    for (std::uint32_t g = 0; g < grid.y; ++g) {
      for (std::uint32_t warp = 0; warp < num_warps; ++warp) {
        TileWalk walk(warp, num_warps, batch.groups[g].tiles);
        for (; walk.row < batch.num_rows; walk.advance()) {
          for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
            parts.push_back({.group = g, .row = walk.row, .tile = walk.tile, .lane = lane});
          }
        }
      }
    }
    std::ranges::shuffle(parts, streams_.random());
    return parts;
  }

  bool may_copy(std::uint64_t to, const void* from, std::size_t bytes) {
    if (!pins_.holds(from, bytes)) {
      add_fault("Memory was copied that is not pinned.");
      return false;
    }
    if (!memory_.holds(to, bytes)) {
      add_fault("Something was copied into memory that is not allocated.");
      return false;
    }
    return true;
  }

  // A slab that was written again too early can name rows that lie anywhere.
  bool may_pad(const PadBatch& batch, const PadGroup& group, std::uint32_t row) {
    const auto slab = reinterpret_cast<std::uint64_t>(batch.slab);
    const std::uint64_t table = slab + std::uint64_t{group.rows} * kStagingAlignment;
    if (!memory_.holds(table, sizeof(StagedRow) * (row + 1))) {
      add_fault("The kernel read a slab that is not allocated.");
      return false;
    }
    const StagedRow staged = reinterpret_cast<const StagedRow*>(table)[row];
    for (std::uint32_t f = group.first_field; f < group.end_field; ++f) {
      const PadField& field = batch.fields[f];
      const std::uint64_t row_bytes = std::uint64_t{field.width} * field.pad.out_bytes;
      const auto out = reinterpret_cast<std::uint64_t>(batch.out) + field.out + row * row_bytes;
      if (!allows_any_output_ && !memory_.holds(out, row_bytes)) {
        add_fault("The kernel wrote to memory that is not allocated.");
        return false;
      }
      if (field.rows == PadField::Rows::kLengths) {
        continue;
      }
      const std::uint64_t values = std::uint64_t{staged.length} * field.cell_values;
      const bool reads = field.pad.source == Pad::Source::kValues ||
                         field.pad.source == Pad::Source::kSignedValues;
      const std::uint64_t begin = slab + std::uint64_t{staged.place} * kStagingAlignment;
      if (values > field.width || (reads && !memory_.holds(begin, values * field.pad.wire_bytes))) {
        add_fault("The kernel met a row that is longer than its slab or its output.");
        return false;
      }
    }
    return true;
  }

  FakeStreams streams_;
  FakeMemory memory_;
  FakePins pins_;
  bool allows_any_output_;
  std::vector<std::string> faults_;
};

}  // namespace evenstride::testing
