// Dealing samples to cells: where each one goes, in which order, and how evenly.
#include "core/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;
using testing::Values;

using Pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // Index and length.

// What it takes to deal some lengths; every bucket is a group, and the removed samples are nowhere.
struct Deal {
  Values lengths;
  FillLimits limits;
  Admission admission;
  Values edges;
  Grouping grouping;
  Stream stream{0};

  [[nodiscard]] Classes classes() const { return {edges, limits, admission, lengths.size()}; }
};

Deal random_deal(Random& random, std::size_t most_samples) {
  Deal deal;
  deal.lengths = testing::random_lengths(random, random.between(1, most_samples), 100);
  deal.lengths.push_back(1);  // One at least is admitted.
  deal.limits = {.token_budget = random.between(50, 100)};
  deal.admission = {.too_long = random.one_in(2) ? TooLong::kDrop : TooLong::kAlone,
                    .empty = random.one_in(2) ? Empty::kDrop : Empty::kKeep};
  deal.edges = testing::random_edges(random, 4, 100);
  const Classes classes = deal.classes();
  for (std::size_t label = 0; label < classes.num_classes(); ++label) {
    const bool is_out = label > classes.alone();
    deal.grouping.group_of_class.push_back(is_out ? Grouping::kNowhere : label);
    if (!is_out) {
      deal.grouping.is_whole.push_back(random.one_in(4));
    }
  }
  deal.grouping.cell_samples = random.between(1, 100);
  deal.stream = Stream(random.next());
  return deal;
}

template <class Entry>
Pairs pairs_of(const std::vector<Entry>& entries) {
  Pairs pairs;
  for (const Entry& entry : entries) {
    pairs.emplace_back(entry.index(), entry.length());
  }
  return pairs;
}

// Returns the samples of each cell, and with `group_ends` where each group's cells end.
template <class Entry>
std::vector<Pairs> deal_to_cells(const Deal& deal, int num_threads,
                                 std::vector<std::size_t>* group_ends = nullptr) {
  const Classes classes = deal.classes();
  Team team(num_threads);
  const Survey found =
      survey(testing::view(deal.lengths), classes, deal.limits, deal.admission, team);
  Workspace workspace;
  const Cells<Entry> cells(testing::view(deal.lengths), classes, found, deal.grouping, deal.stream,
                           workspace, team);
  std::vector<Pairs> result;
  std::size_t largest = 0;
  for (std::size_t group = 0; group < cells.num_groups(); ++group) {
    EXPECT_EQ(cells.group_begin(group), result.size());
    for (std::size_t cell = result.size(); cell < cells.group_begin(group + 1); ++cell) {
      EXPECT_EQ(cells.group_of(cell), group);
      std::vector<Entry> entries(cells.samples(cell));
      cells.read(cell, entries);
      result.push_back(pairs_of(entries));
      largest = std::max(largest, entries.size());
    }
    if (group_ends != nullptr) {
      group_ends->push_back(result.size());
    }
  }
  EXPECT_EQ(cells.num_cells(), result.size());
  EXPECT_EQ(cells.largest(), largest);
  return result;
}

template <class Entry>
class CellsOf : public ::testing::Test {};

struct Names {
  template <class Entry>
  static std::string GetName(int) {
    return sizeof(Entry) == 8 ? "Packed" : "Wide";
  }
};

using Entries = ::testing::Types<PackedEntry, WideEntry>;
TYPED_TEST_SUITE(CellsOf, Entries, Names);

TYPED_TEST(CellsOf, EachSampleIsInOneCellOfItsGroupInIndexOrder) {
  Random random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const Deal deal = random_deal(random, 2000);
    const Classes classes = deal.classes();
    std::vector<Pairs> groups(classes.alone() + 1);
    for (std::size_t i = 0; i < deal.lengths.size(); ++i) {
      const std::size_t group = deal.grouping.group_of_class[classes(deal.lengths[i])];
      if (group != Grouping::kNowhere) {
        groups[group].emplace_back(i, deal.lengths[i]);
      }
    }
    std::vector<std::size_t> group_ends;
    const auto cells = deal_to_cells<TypeParam>(deal, 1, &group_ends);
    std::size_t cell = 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (deal.grouping.is_whole[group]) {
        EXPECT_EQ(group_ends[group], cell + 1);
      }
      Pairs dealt;
      for (; cell < group_ends[group]; ++cell) {
        EXPECT_TRUE(std::is_sorted(cells[cell].begin(), cells[cell].end()));
        dealt.insert(dealt.end(), cells[cell].begin(), cells[cell].end());
      }
      std::sort(dealt.begin(), dealt.end());
      ASSERT_EQ(dealt, groups[group]) << "trial " << trial << ", group " << group;
    }
  }
}

TYPED_TEST(CellsOf, CellsAreTheSameForEveryNumberOfThreads) {
  Random random(2);
  for (int trial = 0; trial < 60; ++trial) {
    const Deal deal = random_deal(random, 4000);
    const auto cells = deal_to_cells<TypeParam>(deal, 1);
    for (const int num_threads : {2, 3, 5}) {
      ASSERT_EQ(deal_to_cells<TypeParam>(deal, num_threads), cells) << num_threads;
    }
  }
}

TYPED_TEST(CellsOf, CellsThatOverflowTheirRoomAreTheSame) {
  Random random(3);
  for (int trial = 0; trial < 100; ++trial) {
    Deal deal = random_deal(random, 2000);
    deal.grouping.slack = 1e9;
    const auto roomy = deal_to_cells<TypeParam>(deal, 1);
    for (const double slack : {0.0, 0.01, 0.3, 6.5}) {
      deal.grouping.slack = slack;
      for (const int num_threads : {1, 3}) {
        ASSERT_EQ(deal_to_cells<TypeParam>(deal, num_threads), roomy) << slack;
      }
    }
  }
}

TEST(Cells, PackedAndWideEntriesAreDealtAlike) {
  Random random(4);
  for (int trial = 0; trial < 100; ++trial) {
    const Deal deal = random_deal(random, 2000);
    ASSERT_EQ(deal_to_cells<PackedEntry>(deal, 1), deal_to_cells<WideEntry>(deal, 2));
  }
}

Deal one_group(std::size_t size, std::size_t cell_samples, std::uint64_t key) {
  Deal deal;
  deal.lengths = testing::indices_below(size);
  deal.limits = {.token_budget = 1'000'000};
  deal.grouping.group_of_class = {0, 0, Grouping::kNowhere, Grouping::kNowhere};
  deal.grouping.is_whole = {false};
  deal.grouping.cell_samples = cell_samples;
  deal.stream = Stream::of(5, key);
  return deal;
}

TEST(Cells, EveryCellIsAsLikely) {
  Values sizes;
  for (const Pairs& cell : deal_to_cells<PackedEntry>(one_group(100'000, 100, 0), 2)) {
    sizes.push_back(cell.size());
  }
  ASSERT_EQ(sizes.size(), 1024U);
  EXPECT_LT(std::abs(testing::unevenness(sizes)), 4);
}

TEST(Cells, NeighboursAreDealtIndependently) {
  constexpr std::size_t kCells = 4;
  Values meetings(kCells * kCells);
  for (std::uint64_t key = 0; key < 40; ++key) {
    std::vector<std::size_t> cell_of(1024);
    const auto cells = deal_to_cells<PackedEntry>(one_group(1024, 256, key), 1);
    ASSERT_EQ(cells.size(), kCells);
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      for (const auto& [index, length] : cells[cell]) {
        cell_of[index] = cell;
      }
    }
    for (std::size_t i = 0; i < cell_of.size(); i += 2) {
      ++meetings[cell_of[i] * kCells + cell_of[i + 1]];
    }
  }
  EXPECT_LT(testing::unevenness(meetings), 4);
}

// Returns the indices of one cell's samples, shuffled.
template <class Entry>
Values shuffled(const Cells<Entry>& cells, std::size_t cell, Stream stream) {
  std::vector<Entry> entries(cells.samples(cell));
  cells.read_shuffled(cell, stream, entries);
  Values indices;
  for (const Entry& entry : entries) {
    EXPECT_EQ(entry.length(), entry.index());
    indices.push_back(entry.index());
  }
  return indices;
}

// Cells of the lengths 0, 1, 2, ..., so that an index tells the length.
template <class Entry>
class Dealt {
 public:
  Dealt(std::size_t size, std::size_t cell_samples, int num_threads)
      : deal_(one_group(size, cell_samples, 0)), classes_(deal_.classes()) {
    Team team(num_threads);
    const Survey found = survey(testing::view(deal_.lengths), classes_, deal_.limits, {}, team);
    cells_.emplace(testing::view(deal_.lengths), classes_, found, deal_.grouping, deal_.stream,
                   workspace_, team);
  }

  const Cells<Entry>* operator->() const { return &*cells_; }
  const Cells<Entry>& operator*() const { return *cells_; }

 private:
  Deal deal_;
  Classes classes_;
  Workspace workspace_;
  std::optional<Cells<Entry>> cells_;
};

TYPED_TEST(CellsOf, AShuffledCellIsAPermutationThatTheStreamAloneFixes) {
  for (const std::size_t size : {1U, 2U, 255U, 256U, 257U, 700U, 5000U}) {
    const Dealt<TypeParam> one(size, 100'000, 1);
    const Dealt<TypeParam> three(size, 100'000, 3);
    const Values first = shuffled(*one, 0, Stream(1));
    EXPECT_EQ(testing::sorted(first), testing::indices_below(size));
    EXPECT_EQ(shuffled(*three, 0, Stream(1)), first);
    if (size > 200) {
      EXPECT_NE(shuffled(*one, 0, Stream(2)), first);
      EXPECT_NE(first, testing::indices_below(size));
    }
  }
}

TEST(Cells, EachOrderOfACellIsAsLikely) {
  const Dealt<PackedEntry> cells(4, 4, 1);
  Values counts(256);
  for (std::uint64_t trial = 0; trial < 96'000; ++trial) {
    const Values order = shuffled(*cells, 0, Stream::of(6, trial));
    ++counts[order[0] + 4 * order[1] + 16 * order[2] + 64 * order[3]];
  }
  std::erase(counts, 0U);
  ASSERT_EQ(counts.size(), 24U);
  EXPECT_LT(testing::unevenness(counts), 4);
}

TEST(Cells, EachPlaceInALargeCellIsAsLikely) {
  constexpr std::size_t kSize = 512;
  const Dealt<WideEntry> cells(kSize, kSize, 1);
  Values first(kSize);
  Values last(kSize);
  Values place(kSize);
  for (std::uint64_t trial = 0; trial < 10'000; ++trial) {
    const Values order = shuffled(*cells, 0, Stream::of(7, trial));
    ++first[order.front()];
    ++last[order.back()];
    ++place[static_cast<std::size_t>(std::ranges::find(order, 300U) - order.begin())];
  }
  for (const Values& counts : {first, last, place}) {
    EXPECT_LT(std::abs(testing::unevenness(counts)), 4);
  }
}

TYPED_TEST(CellsOf, ACellsMemoryHoldsItsSamplesAndNoOthers) {
  const Dealt<TypeParam> cells(5000, 300, 3);
  for (std::size_t cell = 0; cell < cells->num_cells(); ++cell) {
    std::ranges::fill(cells->memory(cell), std::byte{0xFF});
    for (std::size_t other = cell + 1; other < cells->num_cells(); ++other) {
      std::vector<TypeParam> entries(cells->samples(other));
      cells->read(other, entries);
      ASSERT_TRUE(std::ranges::all_of(
          entries, [](const TypeParam& entry) { return entry.length() == entry.index(); }));
    }
  }
}

TEST(Workspace, GrowsAndIsKept) {
  Workspace workspace;
  std::byte* const memory = workspace.reserve(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0U);
  EXPECT_EQ(workspace.reserve(10), memory);
  EXPECT_EQ(workspace.reserve(1000), memory);
  std::byte* const more = workspace.reserve(std::size_t{5} << 20);
  std::memset(more, 1, std::size_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(more) % 64, 0U);
}

TEST(Workspace, IsUsedAgainOnceItsMemoryWasReleased) {
  Workspace workspace;
  workspace.release();
  (void)workspace.reserve(1000);
  workspace.release();
  std::byte* const memory = workspace.reserve(1000);
  ASSERT_NE(memory, nullptr);
  std::memset(memory, 1, 1000);
}

}  // namespace
}  // namespace evenstride
