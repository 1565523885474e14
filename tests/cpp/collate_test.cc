// Batches against their definition, value by value; what is refused; and threads.
#include "collate/collate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batches.h"
#include "ragged.h"

namespace evenstride {
namespace {

using testing::Expected;
using testing::expected_of;
using testing::Field;
using testing::Guarded;
using testing::kUntouched;
using testing::Magnitude;
using testing::one_chunk;
using testing::Random;
using testing::RandomCollator;
using testing::Samples;
using Source = Output::Source;

void expect_batch(const RandomCollator& random, const Samples& samples, BatchRows& batch) {
  const Collator& collator = *random.collator;
  const std::vector<std::size_t> numbers = random.numbers_of(samples);
  collator.look_up(samples, batch);
  const Layout& layout = batch.layout;
  ASSERT_EQ(layout.num_samples, samples.size());
  ASSERT_EQ(layout.arrays.size(), random.made.size());
  Guarded memory(layout.bytes);
  std::fill_n(memory.data(), layout.bytes, kUntouched);
  collator.write(batch, memory.data());
  ASSERT_TRUE(memory.is_intact());
  std::vector<std::byte> all(layout.bytes, kUntouched);
  std::uint64_t end = 0;
  std::uint64_t widest = 1;
  for (std::size_t o = 0; o < random.made.size(); ++o) {
    const Expected expected = expected_of(random.made[o], numbers, random.multiple);
    const Layout::Array& array = layout.arrays[o];
    ASSERT_EQ(array.width, expected.width) << o;
    ASSERT_EQ(array.truncated_samples, expected.truncated_samples) << o;
    ASSERT_EQ(array.truncated_tokens, expected.truncated_tokens) << o;
    ASSERT_EQ(array.offset % 64, 0U);
    ASSERT_GE(array.offset, end);
    end = array.offset + expected.bytes.size();
    ASSERT_LE(end, layout.bytes);
    std::ranges::copy(expected.bytes, all.begin() + static_cast<std::ptrdiff_t>(array.offset));
    widest = std::max(widest, array.width);
  }
  ASSERT_TRUE(std::ranges::equal(memory.bytes(), all));
  ASSERT_LE(layout.bytes, collator.most_bytes(samples.size(), samples.size() * widest));
}

TEST(Collator, RandomBatchesMatchTheirDefinition) {
  Random random(1);
  BatchRows batch;  // Used again and again, as by a thread.
  for (int run = 0; run < 700; ++run) {
    const RandomCollator made(random, {.magnitude = static_cast<Magnitude>(random.below(3)),
                                       .num_rows = random.between(1, 30)});
    ASSERT_EQ(made.collator->num_samples(), made.num_samples);
    for (int k = 0; k < 4; ++k) {
      expect_batch(made, made.random_samples(random, 12), batch);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(Collator, ABatchWithoutSamplesHasNoRowsAndTheLeastWidth) {
  const Field field = one_chunk(DType::kInt32, {{1, 2, 3}});
  const Collator collator({{.key = "ids", .column = field.column},
                           {.key = "lengths", .source = Source::kLengths, .column = field.column}},
                          std::nullopt, 8);
  BatchRows batch;
  collator.look_up({}, batch);
  EXPECT_EQ(batch.layout.num_samples, 0U);
  EXPECT_EQ(batch.layout.bytes, 0U);
  EXPECT_EQ(batch.layout.arrays[0].width, 8U);
  EXPECT_EQ(batch.layout.arrays[1].width, 1U);
  collator.write(batch, nullptr, 4);
}

TEST(Collator, SeveralThreadsWriteWhatOneDoes) {
  Random random(2);
  const auto random_rows = [&](std::size_t most_values, std::size_t cell_values) {
    Field::Rows rows(150);
    for (std::vector<std::uint64_t>& row : rows) {
      row.resize(random.below(most_values) / cell_values * cell_values);
      std::ranges::generate(row, [&] { return random.below(30000); });
    }
    return rows;
  };
  const Field ids = one_chunk(DType::kUInt16, random_rows(9000, 1));
  const Field frames = one_chunk(DType::kFloat32, random_rows(3000, 3), {3});
  const Collator collator({{.key = "ids", .column = ids.column, .padding = 7, .pads_left = true},
                           {.key = "mask", .source = Source::kMask, .column = ids.column},
                           {.key = "frames", .column = frames.column, .dtype = DType::kFloat32},
                           {.key = "lengths", .source = Source::kLengths, .column = ids.column}},
                          std::nullopt, 1);
  Samples samples(150);
  std::ranges::generate(samples, [&] { return static_cast<std::int64_t>(random.below(150)); });
  BatchRows batch;
  collator.look_up(samples, batch);
  ASSERT_GT(batch.layout.bytes, 16U << 20);
  Guarded alone(batch.layout.bytes);
  collator.write(batch, alone.data(), 1);
  for (const int num_threads : {0, 2, 3, 16}) {
    Guarded together(batch.layout.bytes);
    collator.write(batch, together.data(), num_threads);
    EXPECT_TRUE(std::ranges::equal(together.bytes(), alone.bytes()));
    EXPECT_TRUE(together.is_intact());
  }
}

}  // namespace
}  // namespace evenstride
