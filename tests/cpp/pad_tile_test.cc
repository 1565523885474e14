// The body of the kernel: what it writes, how often, and where, against the collator of the host.
#include "cuda/pad_tile.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "batches.h"
#include "collate/collate.h"
#include "cuda/staging.h"
#include "emulated.h"
#include "ragged.h"

namespace evenstride {
namespace {

using testing::CountingStore;
using testing::emulate;
using testing::ExactMemory;
using testing::Guarded;
using testing::kUntouched;
using testing::Magnitude;
using testing::Random;
using testing::RandomCollator;
using testing::Samples;

// The outputs of a batch as the host makes them, with what lies between them untouched.
std::vector<std::byte> collated(const Collator& collator, const BatchRows& rows) {
  Guarded memory(rows.layout.bytes);
  std::fill_n(memory.data(), rows.layout.bytes, kUntouched);
  collator.write(rows, memory.data());
  return {memory.bytes().begin(), memory.bytes().end()};
}

template <std::uint32_t kLanes, class Store>
void expect_emulated(Random& random, const StagedBatch& batch, const ExactMemory& slab,
                     const std::vector<std::byte>& expected) {
  Guarded out(expected.size());
  std::fill_n(out.data(), expected.size(), kUntouched);
  CountingStore::begin = out.data();
  CountingStore::writes.assign(expected.size(), 0);
  PadBatch pad = batch.pad;
  pad.slab = slab.data();
  pad.out = out.data();
  emulate<kLanes, Store>(random, pad);
  ASSERT_TRUE(std::ranges::equal(out.bytes(), expected)) << kLanes << " lanes";
  ASSERT_TRUE(out.is_intact()) << kLanes << " lanes";
}

// How often each byte is to be written: those of outputs once, those between them never.
std::vector<std::uint32_t> expected_writes(const Collator& collator, const Layout& layout) {
  std::vector<std::uint32_t> writes(layout.bytes);
  for (std::size_t o = 0; o < layout.arrays.size(); ++o) {
    const std::uint64_t values =
        layout.num_samples * layout.arrays[o].width * collator.recipes()[o].cell_values;
    std::fill_n(writes.begin() + static_cast<std::ptrdiff_t>(layout.arrays[o].offset),
                values * size_of(collator.outputs()[o].dtype), 1);
  }
  return writes;
}

void expect_staged(Random& random, const RandomCollator& made, const Staging& staging,
                   const Samples& samples, BatchRows& rows, StagedBatch& batch) {
  const Collator& collator = *made.collator;
  collator.look_up(samples, rows);
  staging.lay_out(rows, batch);
  Guarded written(batch.bytes);
  std::fill_n(written.data(), batch.bytes, kUntouched);
  staging.write(rows, batch, written.data());
  ASSERT_TRUE(written.is_intact());
  const ExactMemory slab(written.bytes());
  const std::vector<std::byte> expected = collated(collator, rows);
  expect_emulated<1, PlainStore>(random, batch, slab, expected);
  expect_emulated<2, PlainStore>(random, batch, slab, expected);
  expect_emulated<4, PlainStore>(random, batch, slab, expected);
  expect_emulated<8, PlainStore>(random, batch, slab, expected);
  expect_emulated<16, PlainStore>(random, batch, slab, expected);
  expect_emulated<32, PlainStore>(random, batch, slab, expected);
  expect_emulated<8, CountingStore>(random, batch, slab, expected);
  ASSERT_EQ(CountingStore::writes, expected_writes(collator, rows.layout));
  expect_emulated<32, CountingStore>(random, batch, slab, expected);
  ASSERT_EQ(CountingStore::writes, expected_writes(collator, rows.layout));
}

// Expects batches as the host makes them from `num_collators` collators, four each.
void expect_all_staged(std::uint64_t seed, int num_collators, std::size_t most_rows,
                       std::uint64_t longest, std::uint64_t most_samples) {
  Random random(seed);
  BatchRows rows;
  StagedBatch batch;
  for (int run = 0; run < num_collators; ++run) {
    const RandomCollator made(random, {.magnitude = static_cast<Magnitude>(random.below(3)),
                                       .num_rows = random.between(1, most_rows),
                                       .longest = longest});
    const Staging staging(made.collator);
    for (int k = 0; k < 4; ++k) {
      const Samples samples = made.random_samples(random, most_samples + 1);
      expect_staged(random, made, staging, samples, rows, batch);
      if (::testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(PadTile, BatchesOfAnyShapeAreTheHostsByteForByteAndWrittenOnce) {
  expect_all_staged(1, 2300, 8, 20, 4);
}

TEST(PadTile, BatchesOfRowsOfSeveralTilesAreTheHosts) {
  expect_all_staged(2, 250, 6, std::uint64_t{3} * kTileValues, 3);
}

TEST(TileWalk, ComesToEachTileOfEachRowOnce) {
  for (const std::uint32_t num_rows : {0U, 1U, 2U, 7U, 30U}) {
    for (std::uint32_t tiles = 1; tiles <= 9; ++tiles) {
      for (std::uint32_t num_walkers = 1; num_walkers <= 70; ++num_walkers) {
        std::vector<int> visits(std::size_t{num_rows} * tiles);
        for (std::uint32_t walker = 0; walker < num_walkers; ++walker) {
          for (TileWalk walk(walker, num_walkers, tiles); walk.row < num_rows; walk.advance()) {
            ASSERT_LT(walk.tile, tiles);
            ++visits[walk.row * tiles + walk.tile];
          }
        }
        ASSERT_EQ(std::ranges::count(visits, 1), num_rows * tiles) << tiles << ' ' << num_walkers;
      }
    }
  }
}

// Addresses that are reserved and take memory only where they are written.
class Reserved {
 public:
  explicit Reserved(std::uint64_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() {
    if (is_there()) {
      munmap(memory_, bytes_);
    }
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  [[nodiscard]] bool is_there() const { return memory_ != MAP_FAILED; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::uint64_t bytes_;
  void* memory_;
};

constexpr std::uint32_t kWidest = 0x7FFF'FFFF;

// A batch of one output, and no more than that.
PadBatch batch_of(const std::byte* slab, std::byte* out, std::uint32_t num_rows,
                  const PadField& field) {
  PadBatch batch{};
  batch.slab = slab;
  batch.out = out;
  batch.num_rows = num_rows;
  batch.num_groups = 1;
  batch.groups[0] = {.rows = 0, .first_field = 0, .end_field = 1, .tiles = num_tiles(field.width)};
  batch.fields[0] = field;
  return batch;
}

PadField wide_field(bool pads_left) {
  return {.out = 0,
          .padding = 7,
          .prompts = PadField::kNoPrompt,
          .width = kWidest,
          .cell_values = 1,
          .pad = pad_values_of(DType::kInt64, DType::kInt64),
          .rows = PadField::Rows::kValues,
          .pads_left = pads_left};
}

TEST(PadTile, WritesTheLastTileOfRowsPast2To31Values) {
  constexpr std::uint32_t kRows = 3;
  const Reserved slab(std::uint64_t{kWidest} * 8 + 4096);
  const Reserved out(std::uint64_t{kWidest} * 8 * kRows);
  if (!slab.is_there() || !out.is_there()) {
    GTEST_SKIP() << "The system reserves no more addresses than it has memory.";
  }
  for (const bool pads_left : {false, true}) {
    for (const std::uint32_t padding : {0U, 3U}) {
      const PadField field = wide_field(pads_left);
      const PadBatch batch = batch_of(slab.data(), out.data(), kRows, field);
      auto* const rows = reinterpret_cast<StagedRow*>(slab.data());
      rows[kRows - 1] = {.place = 4, .length = kWidest - padding};
      const std::uint32_t shift = staged_shift(kRows - 1, kWidest, pads_left ? padding : 0, 8);
      auto* const values = reinterpret_cast<std::uint64_t*>(slab.data() + 64 + shift);
      for (std::uint32_t i = 1; i <= 5; ++i) {
        values[kWidest - padding - i] = i;
      }
      for (std::uint32_t lane = 0; lane < 32; ++lane) {
        pad_tile<32>(batch, batch.groups[0], kRows - 1, batch.groups[0].tiles - 1, lane);
      }
      std::vector<std::uint64_t> expected{5, 4, 3, 2, 1};
      expected.insert(expected.end(), pads_left ? 0 : padding, 7);
      const auto* const row =
          reinterpret_cast<const std::uint64_t*>(out.data()) + std::uint64_t{kRows - 1} * kWidest;
      const std::uint64_t* const end = row + kWidest;
      EXPECT_EQ(std::vector(end - expected.size(), end), expected) << pads_left << ' ' << padding;
    }
  }
}

TEST(RowOf, AddressesTheLastOfAsManyRowsAndBytesAsCanBe) {
  constexpr std::uint32_t kRows = (std::uint32_t{1} << 28) - 1;
  constexpr std::uint32_t kPlaces = std::numeric_limits<std::uint32_t>::max();
  const Reserved slab(std::uint64_t{kRows} * sizeof(StagedRow));
  if (!slab.is_there()) {
    GTEST_SKIP() << "The system reserves no more addresses than it has memory.";
  }
  PadField field = wide_field(true);
  field.out = std::uint64_t{1} << 40;
  const PadBatch batch = batch_of(slab.data(), slab.data(), kRows, field);  // Nothing is written.
  auto* const rows = reinterpret_cast<StagedRow*>(slab.data());
  rows[kRows - 1] = {.place = kPlaces, .length = 2};
  const PadRow row = row_of(batch, rows + kRows - 1, field, kRows - 1);
  const auto address_of = [](const std::byte* address) {
    return reinterpret_cast<std::uintptr_t>(address);
  };
  EXPECT_EQ(address_of(row.out) - address_of(slab.data()),
            field.out + std::uint64_t{kRows - 1} * kWidest * 8);
  EXPECT_EQ(address_of(row.values) - address_of(slab.data()), std::uint64_t{kPlaces} * 16 + 8);
  EXPECT_EQ(row.length, 2U);
}

}  // namespace
}  // namespace evenstride
