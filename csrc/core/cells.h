// Deals the samples of an epoch to cells: random parts of a bucket, each small enough for a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "core/buckets.h"
#include "core/entries.h"
#include "core/lengths.h"
#include "core/random.h"
#include "core/threads.h"

namespace evenstride {

// Memory that is kept from plan to plan, since touching it for the first time costs more than
// writing it.
class Workspace {
 public:
  static constexpr std::align_val_t kAlignment{64};

  // Returns at least `bytes` of memory with undefined contents, aligned to kAlignment. Invalidates
  // what it returned before.
  std::byte* reserve(std::size_t bytes);

  // Gives the memory back, and invalidates what `reserve` returned.
  void release() noexcept {
    memory_.reset();
    capacity_ = 0;
  }

 private:
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
  };

  std::unique_ptr<std::byte[], Delete> memory_;
  std::size_t capacity_ = 0;
};

// How classes of samples (see `Classes`) are grouped, and how finely a group is divided.
struct Grouping {
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  std::vector<std::size_t> group_of_class;  // kNowhere leaves the class out.
  std::vector<bool> is_whole;               // A whole group has one cell.
  std::size_t cell_samples = 1;             // A cell has at most about this many.
  double slack = 1.0;                       // Room in a cell, in standard deviations. Any is right.
};

inline constexpr std::uint64_t kDealWork = 30;  // Of a sample, for a watch.

// The samples of each group, dealt to its 2^bits cells. A sample draws its cell; together with a
// shuffle of each cell that is a uniform permutation of the group (Rao 1961; Sandelius 1962).
//
// A cell lists its samples by index, whatever the number of threads. Methods are thread-safe but
// for the memory that they say they use.
template <class Entry>
class Cells {
 public:
  // Deals the samples, in O(samples) and about sizeof(Entry) bytes a sample of `workspace`, which
  // the cells use as long as they live. Throws std::runtime_error if they are not those of the
  // survey.
  Cells(const Lengths& lengths, const Classes& classes, const Survey& survey,
        const Grouping& grouping, Stream stream, Workspace& workspace, Team& team);

  // Cells [group_begin(g), group_begin(g + 1)) are those of group g.
  [[nodiscard]] std::size_t num_cells() const noexcept { return num_cells_; }
  [[nodiscard]] std::size_t num_groups() const noexcept { return group_bits_.size(); }
  [[nodiscard]] std::size_t group_begin(std::size_t group) const { return group_begins_[group]; }
  [[nodiscard]] std::size_t group_of(std::size_t cell) const;

  // Returns the number of samples in a cell, or in the largest.
  [[nodiscard]] std::size_t samples(std::size_t cell) const;
  [[nodiscard]] std::size_t largest() const;

  // Fills `out`, of samples(cell) entries, by index or in a uniformly random order.
  void read(std::size_t cell, std::span<Entry> out, const Watch& watch = kUnwatched) const;
  void read_shuffled(std::size_t cell, Stream stream, std::span<Entry> out,
                     const Watch& watch = kUnwatched) const;

  // Returns the cell's own memory, of about sizeof(Entry) bytes a sample. To write there loses the
  // cell.
  [[nodiscard]] std::span<std::byte> memory(std::size_t cell) const;

 private:
  struct Segment {  // What one part of the input has dealt to one cell.
    std::size_t begin;
    std::size_t capacity;
    std::size_t count;
  };
  struct Overflow {  // A sample whose segment was full.
    std::size_t cell;
    Entry entry;
  };

  Segment& segment(std::size_t cell, std::size_t part) {
    return segments_[cell * num_parts_ + part];
  }
  [[nodiscard]] std::span<const Overflow> overflow(std::size_t cell, std::size_t part) const;
  template <class Visit>
  void visit_runs(std::size_t cell, Visit&& visit) const;
  void expect(const Survey& survey, const Grouping& grouping);
  void lay_out(Workspace& workspace);
  void check_unchanged(const Survey& survey, const Grouping& grouping) const;
  template <class T, class Visit>
  void draw_part(std::span<const T> lengths, const Classes& classes, const Grouping& grouping,
                 Stream stream, std::size_t part, Watch& watch, Visit&& visit) const;
  template <class T>
  void deal(std::span<const T> lengths, const Classes& classes, const Grouping& grouping,
            Stream stream, Team& team);

  std::size_t num_parts_;
  std::size_t num_cells_ = 0;
  std::vector<std::uint32_t> group_bits_;
  std::vector<std::size_t> group_begins_;
  std::vector<Segment> segments_;                // Cells x parts.
  std::vector<std::vector<Overflow>> overflow_;  // One list a part, by cell.
  std::byte* memory_ = nullptr;
};

extern template class Cells<PackedEntry>;
extern template class Cells<WideEntry>;

}  // namespace evenstride
