#include "core/compose.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/clones.h"
#include "core/names.h"
#include "core/sort.h"

namespace evenstride {
namespace {

// Fits a core's second-level cache together with a copy; larger cells were slower at 9 M samples,
// smaller ones leave more to the pool. Above 2^12 cells a write to each misses the cache.
constexpr std::size_t kCellSamples = std::size_t{32} * 1024;
constexpr std::size_t kMostCells = 4096;

// Runs lie inside cells, and what is left of a cell after the last whole run goes to the pool.
constexpr std::uint64_t kRunsPerCell = 16;

std::size_t cell_samples_for(const Survey& survey, const ComposeOptions& options) {
  std::uint64_t samples = kCellSamples;
  if (options.composition == Composition::kWindow) {
    samples = std::max(samples, std::min(options.window, survey.admitted.samples) * kRunsPerCell);
  }
  return static_cast<std::size_t>(std::max(samples, survey.admitted.samples / kMostCells));
}

bool is_random(Composition composition) {
  return composition == Composition::kShuffle || composition == Composition::kWindow;
}

Grouping group_by_bucket(const Classes& classes, const Survey& survey,
                         const ComposeOptions& options) {
  Grouping grouping;
  grouping.group_of_class.assign(classes.num_classes(), Grouping::kNowhere);
  for (std::size_t label = 0; label <= classes.alone(); ++label) {
    grouping.group_of_class[label] = label;
    grouping.is_whole.push_back(!is_random(options.composition) || label == classes.alone());
  }
  grouping.cell_samples = cell_samples_for(survey, options);
  return grouping;
}

EVENSTRIDE_CLONES void write_indices(std::span<const PackedEntry> entries, std::byte* to) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const PackedEntry::Index index = entries[i].index();
    std::memcpy(to + i * sizeof(index), &index, sizeof(index));
  }
}

void write_indices(std::span<const WideEntry> entries, std::byte* to) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const WideEntry::Index index = entries[i].index();
    std::memcpy(to + i * sizeof(index), &index, sizeof(index));
  }
}

template <class Entry>
Batch<Entry> batch_of(const Cut& cut, const std::byte* indices) {
  using Index = typename Entry::Index;
  return {.indices = indices + cut.begin * sizeof(Index),
          .count = static_cast<Index>(cut.end - cut.begin),
          .longest = static_cast<Index>(cut.longest)};
}

// What one cell contributes to its bucket. As much of it as finds room lies in the cell's memory,
// the indices at the front; nothing there is aligned.
template <class Entry>
struct FilledCell {
  using Index = typename Entry::Index;

  std::span<const std::byte> batches;       // The first of them, each a Batch.
  std::vector<Batch<Entry>> later_batches;  // Those that found no room.
  std::span<const std::byte> open;          // Samples that no batch has taken yet, each an Entry.
  std::vector<Entry> open_elsewhere;        // The same, if they found none.
  std::vector<Index> arena;                 // The indices, if they found none.
};

template <class Entry>
FilledCell<Entry> fill_cell(const Cells<Entry>& cells, std::size_t cell, std::span<Entry> entries,
                            std::span<Entry> scratch, const ComposeOptions& options,
                            const LengthBounds& bounds, Stream stream, const Watch& watch) {
  using Index = typename Entry::Index;
  if (is_random(options.composition)) {
    cells.read_shuffled(cell, stream.substream(cell), entries, watch);
  } else {
    cells.read(cell, entries, watch);
  }
  const std::size_t settled = arrange(entries, scratch, options, watch);
  FilledCell<Entry> filled;
  std::span<std::byte> memory = cells.memory(cell);
  if (memory.size() < settled * sizeof(Index)) {
    filled.arena.resize(settled);
    memory = std::as_writable_bytes(std::span(filled.arena));
  }
  std::byte* const indices = memory.data();
  const std::span<std::byte> rest = memory.subspan(settled * sizeof(Index));
  std::byte* next = rest.data();
  const std::byte* const end = next + rest.size() / sizeof(Batch<Entry>) * sizeof(Batch<Entry>);
  StepCheck check(watch);
  const std::size_t open =
      fill(std::span<const Entry>(entries.first(settled)), bounds, [&](const Cut& cut) {
        check(cut.end - cut.begin);
        const Batch<Entry> batch = batch_of<Entry>(cut, indices);
        if (next == end) [[unlikely]] {
          append_apart(filled.later_batches, batch);
          return;
        }
        std::memcpy(next, &batch, sizeof(batch));
        next += sizeof(batch);
      });
  const auto used = static_cast<std::size_t>(next - rest.data());
  write_indices(std::span<const Entry>(entries.first(open)), indices);
  filled.batches = rest.first(used);
  const std::span<const Entry> untaken = entries.subspan(open);
  if (rest.size() - used < untaken.size_bytes()) {
    filled.open_elsewhere.assign(untaken.begin(), untaken.end());
  } else {
    filled.open = rest.subspan(used, untaken.size_bytes());
    std::ranges::copy(std::as_bytes(untaken), rest.begin() + static_cast<std::ptrdiff_t>(used));
  }
  return filled;
}

// Copies `items`, one after the other, to where they belong; returns the end.
template <class Item>
Item* copy_items(std::span<const std::byte> items, Item* to) {
  if (!items.empty()) {
    std::memcpy(to, items.data(), items.size());
  }
  const std::size_t num_items = items.size() / sizeof(Item);
  return to + num_items;
}

// Moves what the cells of a bucket have made into it, and returns what is open, in order.
template <class Entry>
LargeVector<Entry> gather(std::span<FilledCell<Entry>> cells, FilledBucket<Entry>& bucket,
                          const Watch& watch) {
  std::size_t num_batches = 0;
  std::size_t num_open = 0;
  for (const FilledCell<Entry>& cell : cells) {
    num_batches += cell.batches.size() / sizeof(Batch<Entry>) + cell.later_batches.size();
    num_open += cell.open.size() / sizeof(Entry) + cell.open_elsewhere.size();
  }
  bucket.batches.resize(num_batches);
  LargeVector<Entry> pool(num_open);
  Batch<Entry>* next_batch = bucket.batches.data();
  Entry* next_open = pool.data();
  for (FilledCell<Entry>& cell : cells) {
    watch.check();
    next_batch = copy_items(cell.batches, next_batch);
    next_batch = std::ranges::copy(cell.later_batches, next_batch).out;
    next_open = copy_items(cell.open, next_open);
    next_open = std::ranges::copy(cell.open_elsewhere, next_open).out;
    if (!cell.arena.empty()) {
      bucket.arenas.push_back(std::move(cell.arena));
    }
  }
  return pool;
}

template <class Entry>
void fill_pool(LargeVector<Entry> pool, const ComposeOptions& options, const LengthBounds& bounds,
               FilledBucket<Entry>& bucket, const Watch& watch) {
  if (options.composition == Composition::kWindow) {
    LargeVector<Entry> scratch(pool.size());
    const std::span<Entry> rest =
        std::span(pool).subspan(arrange(std::span(pool), std::span(scratch), options, watch));
    sort_by_length(rest, std::span(scratch), Direction::kUp, watch);
  }
  std::vector<Cut> cuts;
  StepCheck check(watch);
  fill_all(std::span<const Entry>(pool), bounds, [&](const Cut& cut) {
    check(cut.end - cut.begin);
    cuts.push_back(cut);
  });
  bucket.append(pool, cuts);
}

}  // namespace

Composition parse_composition(std::string_view name) {
  static constexpr Named<Composition> kNames[] = {{"shuffle", Composition::kShuffle},
                                                  {"window", Composition::kWindow},
                                                  {"frozen", Composition::kFrozen}};
  return parse_name("composition", kNames, name);
}

template <class Entry>
void FilledBucket<Entry>::append(std::span<const Entry> entries, std::span<const Cut> cuts) {
  auto& arena = arenas.emplace_back(entries.size());
  auto* const indices = reinterpret_cast<std::byte*>(arena.data());
  write_indices(entries, indices);
  batches.reserve(batches.size() + cuts.size());  // Exactly: they are never appended to often.
  for (const Cut& cut : cuts) {
    batches.push_back(batch_of<Entry>(cut, indices));
  }
}

template <class Entry>
std::size_t arrange(std::span<Entry> entries, std::span<Entry> scratch,
                    const ComposeOptions& options, const Watch& watch) {
  switch (options.composition) {
    case Composition::kShuffle:
      return entries.size();
    case Composition::kFrozen:
      sort_by_length(entries, scratch, Direction::kUp, watch);
      return entries.size();
    case Composition::kSorted:
      sort_by_length(entries, scratch, Direction::kDown, watch);
      return entries.size();
    case Composition::kWindow:
      break;
  }
  std::size_t settled = 0;
  for (Direction direction = Direction::kUp; options.window <= entries.size() - settled;
       direction = direction == Direction::kUp ? Direction::kDown : Direction::kUp) {
    const auto window = static_cast<std::size_t>(options.window);
    sort_by_length(entries.subspan(settled, window), scratch, direction, watch);
    settled += window;
  }
  return settled;
}

template <class Entry>
std::vector<FilledBucket<Entry>> compose(const Lengths& lengths, const Classes& classes,
                                         const Survey& survey, const ComposeOptions& options,
                                         Stream stream, Workspace& workspace, Team& team) {
  const Cells<Entry> cells(lengths, classes, survey, group_by_bucket(classes, survey, options),
                           stream.substream(0), workspace, team);
  const LengthBounds bounds(options.limits, static_cast<std::size_t>(survey.admitted.samples));
  struct Buffers {
    std::vector<Entry> entries;
    std::vector<Entry> scratch;
  };
  std::vector<Buffers> buffers(static_cast<std::size_t>(team.size()));
  std::vector<FilledCell<Entry>> filled(cells.num_cells());
  const std::size_t largest = cells.largest();
  team.for_each(cells.num_cells(), [&](std::size_t cell, int member) {
    Buffers& mine = buffers[static_cast<std::size_t>(member)];
    const std::size_t samples = cells.samples(cell);
    resize_in_pieces(mine.entries, largest, team.watch());
    resize_in_pieces(mine.scratch, options.composition == Composition::kShuffle ? 0 : largest,
                     team.watch());
    filled[cell] =
        fill_cell(cells, cell, std::span(mine.entries).first(samples), std::span(mine.scratch),
                  options, bounds, stream.substream(1), team.watch());
    team.watch().advance(kFillWork * samples);
  });
  std::vector<FilledBucket<Entry>> buckets(cells.num_groups());
  team.for_each(cells.num_groups(), [&](std::size_t group, int) {
    FilledBucket<Entry>& bucket = buckets[group];
    const std::size_t begin = cells.group_begin(group);
    LargeVector<Entry> pool =
        gather(std::span(filled).subspan(begin, cells.group_begin(group + 1) - begin), bucket,
               team.watch());
    bucket.samples = survey.classes[group].samples;
    fill_pool(std::move(pool), options, bounds, bucket, team.watch());
  });
  FilledBucket<Entry> alone = std::move(buckets.back());
  buckets.pop_back();
  FilledBucket<Entry>& longest = buckets.back();
  longest.alone = std::move(alone.batches);
  longest.arenas.insert(longest.arenas.end(), std::make_move_iterator(alone.arenas.begin()),
                        std::make_move_iterator(alone.arenas.end()));
  return buckets;
}

template std::size_t arrange(std::span<PackedEntry>, std::span<PackedEntry>, const ComposeOptions&,
                             const Watch&);
template std::size_t arrange(std::span<WideEntry>, std::span<WideEntry>, const ComposeOptions&,
                             const Watch&);
template std::vector<FilledBucket<PackedEntry>> compose(const Lengths&, const Classes&,
                                                        const Survey&, const ComposeOptions&,
                                                        Stream, Workspace&, Team&);
template std::vector<FilledBucket<WideEntry>> compose(const Lengths&, const Classes&, const Survey&,
                                                      const ComposeOptions&, Stream, Workspace&,
                                                      Team&);
template struct FilledBucket<PackedEntry>;
template struct FilledBucket<WideEntry>;

}  // namespace evenstride
