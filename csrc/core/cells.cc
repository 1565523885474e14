#include "core/cells.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <variant>

#include "core/clones.h"
#include "core/memory.h"

namespace evenstride {
namespace {

constexpr std::size_t kLine = 64;        // Bytes of a cache line.
constexpr std::size_t kBlock = 256;      // Samples that share a call of `draw`.
constexpr std::size_t kLanes = 4;        // 16-bit draws a hash.
constexpr std::uint32_t kDrawBits = 16;  // So a group has at most 2^16 cells.

// Writes draws [first, first + out.size()) of the stream.
EVENSTRIDE_CLONES void draw(Stream stream, std::uint64_t first, std::uint64_t* out,
                            std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = stream(first + i);
  }
}

std::uint32_t bits_for(std::uint64_t samples, std::size_t cell_samples) {
  const std::uint64_t cells = (samples + cell_samples - 1) / cell_samples;
  const auto bits =
      static_cast<std::uint32_t>(std::bit_width(std::max<std::uint64_t>(1, cells) - 1));
  return std::min(kDrawBits, bits);
}

// Where the samples of a class go: cell first_cell + (draw >> shift), for a draw of kDrawBits bits.
// In one number, so that the table of all lengths stays small.
class Target {
 public:
  Target() = default;
  Target(std::size_t first_cell, std::uint32_t shift)
      : bits_(static_cast<std::uint32_t>(first_cell) << kShiftBits | shift) {}

  [[nodiscard]] static Target nowhere() { return {kNoCell, 0}; }
  [[nodiscard]] bool is_nowhere() const { return bits_ >> kShiftBits == kNoCell; }
  [[nodiscard]] std::uint32_t cell(std::uint64_t draw) const {
    const auto lowest = static_cast<std::uint32_t>(draw & ((1U << kDrawBits) - 1));
    return (bits_ >> kShiftBits) + (lowest >> (bits_ & ((1U << kShiftBits) - 1)));
  }

 private:
  static constexpr std::uint32_t kShiftBits = 5;
  static constexpr std::uint32_t kNoCell = ~std::uint32_t{0} >> kShiftBits;

  std::uint32_t bits_ = 0;
};

}  // namespace

std::byte* Workspace::reserve(std::size_t bytes) {
  if (bytes > capacity_) {
    memory_.reset();  // First, so that the two are never held at once.
    capacity_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new[](bytes, kAlignment)));
    capacity_ = bytes;
    advise_huge_pages(memory_.get(), bytes);
  }
  return memory_.get();
}

template <class Entry>
Cells<Entry>::Cells(const Lengths& lengths, const Classes& classes, const Survey& survey,
                    const Grouping& grouping, Stream stream, Workspace& workspace, Team& team)
    : num_parts_(survey.part_samples.size() / classes.num_classes()), overflow_(num_parts_) {
  expect(survey, grouping);
  lay_out(workspace);
  std::visit([&](const auto& values) { deal(values, classes, grouping, stream, team); }, lengths);
  check_unchanged(survey, grouping);
}

// Everything downstream has made room for the samples that were surveyed, in all and in each group.
template <class Entry>
void Cells<Entry>::check_unchanged(const Survey& survey, const Grouping& grouping) const {
  std::vector<std::uint64_t> expected(num_groups());
  for (std::size_t label = 0; label < grouping.group_of_class.size(); ++label) {
    if (grouping.group_of_class[label] != Grouping::kNowhere) {
      expected[grouping.group_of_class[label]] += survey.classes[label].samples;
    }
  }
  std::vector<std::uint64_t> dealt(num_groups());
  for (std::size_t group = 0; group < num_groups(); ++group) {
    for (std::size_t cell = group_begins_[group]; cell < group_begins_[group + 1]; ++cell) {
      dealt[group] += samples(cell);
    }
  }
  const auto total = [](const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  };
  if (total(dealt) != total(expected)) {
    throw std::runtime_error("`lengths` must never change, but " + std::to_string(total(expected)) +
                             " samples are " + std::to_string(total(dealt)) + " now.");
  }
  const auto [was, is] = std::ranges::mismatch(expected, dealt);
  if (was != expected.end()) {
    throw std::runtime_error("`lengths` must never change, but " + std::to_string(*was) +
                             " samples of a bucket are " + std::to_string(*is) + " now.");
  }
}

// Makes room for about as many samples as a cell is likely to get; the others are few.
template <class Entry>
void Cells<Entry>::expect(const Survey& survey, const Grouping& grouping) {
  const std::size_t num_groups = grouping.is_whole.size();
  const std::size_t num_classes = grouping.group_of_class.size();
  std::vector<std::uint64_t> dealt(num_groups * num_parts_);
  std::vector<std::uint64_t> totals(num_groups);
  for (std::size_t part = 0; part < num_parts_; ++part) {
    for (std::size_t label = 0; label < num_classes; ++label) {
      const std::size_t group = grouping.group_of_class[label];
      if (group != Grouping::kNowhere) {
        const std::uint64_t samples = survey.part_samples[part * num_classes + label];
        dealt[group * num_parts_ + part] += samples;
        totals[group] += samples;
      }
    }
  }
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::uint32_t bits =
        grouping.is_whole[group] ? 0 : bits_for(totals[group], grouping.cell_samples);
    group_bits_.push_back(bits);
    group_begins_.push_back(num_cells_);
    num_cells_ += std::size_t{1} << bits;
    for (std::size_t cell = 0; cell < std::size_t{1} << bits; ++cell) {
      for (std::size_t part = 0; part < num_parts_; ++part) {
        const std::uint64_t samples = dealt[group * num_parts_ + part];
        std::uint64_t room = samples;
        if (bits > 0) {
          const double mean = std::ldexp(static_cast<double>(samples), -static_cast<int>(bits));
          room = std::min(
              samples, static_cast<std::uint64_t>(mean + grouping.slack * (std::sqrt(mean) + 1.0)));
        }
        segments_.push_back({.begin = 0, .capacity = static_cast<std::size_t>(room), .count = 0});
      }
    }
  }
  group_begins_.push_back(num_cells_);
}

template <class Entry>
void Cells<Entry>::lay_out(Workspace& workspace) {
  std::size_t begin = 0;
  for (Segment& segment : segments_) {
    segment.begin = begin;
    segment.count = 0;
    begin += segment.capacity;
  }
  memory_ = workspace.reserve(begin * sizeof(Entry));
}

// Calls visit(cell, length, index) for each sample of a part, by index.
template <class Entry>
template <class T, class Visit>
void Cells<Entry>::draw_part(std::span<const T> lengths, const Classes& classes,
                             const Grouping& grouping, Stream stream, std::size_t part,
                             Watch& watch, Visit&& visit) const {
  std::vector<Target> targets;
  for (const std::size_t group : grouping.group_of_class) {
    targets.push_back(group == Grouping::kNowhere
                          ? Target::nowhere()
                          : Target(group_begins_[group], kDrawBits - group_bits_[group]));
  }
  // One look-up a sample instead of two; the lengths that come often stay in the nearest cache.
  std::vector<Target> target_of(classes.table().size());
  std::transform(classes.table().begin(), classes.table().end(), target_of.begin(),
                 [&](std::uint16_t label) { return targets[label]; });
  const Target* const table = target_of.data();
  const std::size_t table_size = target_of.size();
  const auto visit_sample = [&](std::size_t index, std::uint64_t draws) {
    const auto length = static_cast<std::uint64_t>(lengths[index]);
    const Target target = length < table_size ? table[length] : targets[classes(length)];
    if (!target.is_nowhere()) {
      visit(target.cell(draws), length, index);
    }
  };
  std::array<std::uint64_t, kBlock / kLanes> draws;
  static_assert(kStepsPerCheck % kBlock == 0);
  const auto visit_blocks = [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; block += kBlock) {
      watch.check();  // The first samples of all cells touch all of the memory for the first time.
      draw(stream, block / kLanes, draws.data(), draws.size());
      std::size_t index = block;
      for (const std::uint64_t four : draws) {
        if (end - index < kLanes) {
          for (std::size_t lane = 0; index < end; ++index, ++lane) {
            visit_sample(index, four >> (lane * kDrawBits));
          }
          break;
        }
        visit_sample(index, four);
        visit_sample(index + 1, four >> kDrawBits);
        visit_sample(index + 2, four >> 2 * kDrawBits);
        visit_sample(index + 3, four >> 3 * kDrawBits);
        index += kLanes;
      }
    }
  };
  in_counted_pieces(watch, part_begin(lengths.size(), part, num_parts_),
                    part_begin(lengths.size(), part + 1, num_parts_), kDealWork, visit_blocks);
}

// Writes each sample to its cell, or where that is full to the list of its part.
template <class Entry>
template <class T>
void Cells<Entry>::deal(std::span<const T> lengths, const Classes& classes,
                        const Grouping& grouping, Stream stream, Team& team) {
  struct Slot {
    std::byte* next;
    std::byte* end;
  };
  team.for_each(num_parts_, [&](std::size_t part, int) {
    std::vector<Slot> slots;
    slots.reserve(num_cells_);
    for (std::size_t cell = 0; cell < num_cells_; ++cell) {
      std::byte* const begin = memory_ + segment(cell, part).begin * sizeof(Entry);
      slots.push_back({begin, begin + segment(cell, part).capacity * sizeof(Entry)});
    }
    std::vector<Overflow> overflow;
    Slot* const slot_of = slots.data();
    draw_part(lengths, classes, grouping, stream, part, team.watch(),
              [&](std::size_t cell, std::uint64_t length, std::size_t index) {
                Slot& slot = slot_of[cell];
                std::byte* const to = slot.next;
                if (to == slot.end) [[unlikely]] {
                  append_apart(overflow, {cell, Entry(length, index)});
                  return;
                }
                __builtin_prefetch(to + kLine,
                                   1);  // Of this cell and needed next, but for the last.
                slot.next = to + sizeof(Entry);
                const Entry entry(length, index);
                std::memcpy(to, &entry, sizeof(Entry));
              });
    for (std::size_t cell = 0; cell < num_cells_; ++cell) {
      Segment& room = segment(cell, part);
      room.count =
          static_cast<std::size_t>(slots[cell].next - memory_) / sizeof(Entry) - room.begin;
    }
    std::ranges::stable_sort(overflow, {}, &Overflow::cell);
    overflow_[part] = std::move(overflow);
  });
}

template <class Entry>
std::span<const typename Cells<Entry>::Overflow> Cells<Entry>::overflow(std::size_t cell,
                                                                        std::size_t part) const {
  const auto range = std::ranges::equal_range(overflow_[part], cell, {}, &Overflow::cell);
  return {range.begin(), range.end()};
}

// Calls visit(first, samples, stride) for each run of a cell's samples, by index: entries that
// stand `stride` bytes apart, not aligned.
template <class Entry>
template <class Visit>
void Cells<Entry>::visit_runs(std::size_t cell, Visit&& visit) const {
  for (std::size_t part = 0; part < num_parts_; ++part) {
    const Segment& segment = segments_[cell * num_parts_ + part];
    visit(memory_ + segment.begin * sizeof(Entry), segment.count, sizeof(Entry));
    if (const std::span<const Overflow> more = overflow(cell, part); !more.empty()) {
      visit(reinterpret_cast<const std::byte*>(&more.front().entry), more.size(), sizeof(Overflow));
    }
  }
}

template <class Entry>
std::size_t Cells<Entry>::group_of(std::size_t cell) const {
  const auto next = std::ranges::upper_bound(group_begins_, cell);
  return static_cast<std::size_t>(next - group_begins_.begin()) - 1;
}

template <class Entry>
std::size_t Cells<Entry>::samples(std::size_t cell) const {
  std::size_t samples = 0;
  for (std::size_t part = 0; part < num_parts_; ++part) {
    samples += segments_[cell * num_parts_ + part].count + overflow(cell, part).size();
  }
  return samples;
}

template <class Entry>
std::size_t Cells<Entry>::largest() const {
  std::size_t largest = 0;
  for (std::size_t cell = 0; cell < num_cells_; ++cell) {
    largest = std::max(largest, samples(cell));
  }
  return largest;
}

template <class Entry>
void Cells<Entry>::read(std::size_t cell, std::span<Entry> out, const Watch& watch) const {
  std::size_t read = 0;
  visit_runs(cell, [&](const std::byte* run, std::size_t samples, std::size_t stride) {
    in_pieces(watch, 0, samples, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        std::memcpy(&out[read + i], run + i * stride, sizeof(Entry));
      }
    });
    read += samples;
  });
}

// Fisher and Yates from the inside out: reads the cell once, in order, and moves at random only in
// `out`. 32-bit draws, so that a place is off from its fair share by less than cell / 2^32.
template <class Entry>
void Cells<Entry>::read_shuffled(std::size_t cell, Stream stream, std::span<Entry> out,
                                 const Watch& watch) const {
  std::array<std::uint64_t, kBlock / 2> draws;
  std::size_t settled = 0;
  visit_runs(cell, [&](const std::byte* next, std::size_t samples, std::size_t stride) {
    Entry* const place_of = out.data();  // What the loop writes could be any of the captures.
    const std::size_t end = settled + samples;
    for (std::size_t i = settled; i < end; ++i, next += stride) {
      if (i % kBlock == 0) {
        watch.check();
        draw(stream, i / 2, draws.data(), draws.size());
      }
      const std::uint64_t bits = draws[i % kBlock / 2] >> (i % 2 * 32) & 0xFFFF'FFFF;
      const auto place = static_cast<std::size_t>(bits * (i + 1) >> 32);
      Entry entry;
      std::memcpy(&entry, next, sizeof(Entry));
      place_of[i] = place_of[place];
      place_of[place] = entry;
    }
    settled = end;
  });
}

template <class Entry>
std::span<std::byte> Cells<Entry>::memory(std::size_t cell) const {
  const Segment& first = segments_[cell * num_parts_];
  const Segment& last = segments_[cell * num_parts_ + num_parts_ - 1];
  return {memory_ + first.begin * sizeof(Entry),
          (last.begin + last.capacity - first.begin) * sizeof(Entry)};
}

template class Cells<PackedEntry>;
template class Cells<WideEntry>;

}  // namespace evenstride
