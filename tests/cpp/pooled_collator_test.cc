// A collator with memory of its own: the same batches, in memory that is used again, from threads.
#include "loader/pooled_collator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

namespace evenstride {
namespace {

constexpr std::int64_t kNumRows = 40;
constexpr std::uint64_t kMaxLength = 20;

// Row i holds i values, each of them i.
class PooledCollatorTest : public ::testing::Test {
 protected:
  PooledCollatorTest() {
    for (std::int64_t row = 0; row < kNumRows; ++row) {
      values_.insert(values_.end(), static_cast<std::size_t>(row), row);
      offsets_.push_back(static_cast<std::int64_t>(values_.size()));
    }
    auto column =
        std::make_shared<Column>("ids", "", DType::kInt64, std::vector<std::uint64_t>{}, true);
    column->append({.values = reinterpret_cast<const std::byte*>(values_.data()),
                    .num_cells = values_.size(),
                    .num_rows = static_cast<std::uint64_t>(kNumRows),
                    .rows = Chunk::Rows::kOffsets,
                    .bounds = {reinterpret_cast<const std::byte*>(offsets_.data()), offsets_.size(),
                               PackedIntegers::Type::kInt64}});
    collator_ = std::make_unique<PooledCollator>(std::make_shared<const Collator>(
        std::vector<Output>{{.key = "ids", .column = column, .max_length = kMaxLength}},
        std::nullopt, 1));
  }

  // Makes a batch of row `row` alone, and counts it.
  std::shared_ptr<const Slab> collate(std::int64_t row) {
    BatchRows batch;
    const std::vector<std::int64_t> samples{row};
    auto slab = collator_->collate(samples, batch);
    collator_->count(batch.layout);
    return slab;
  }

  static bool holds(const Slab& slab, std::int64_t row) {
    const auto* const values = reinterpret_cast<const std::int64_t*>(slab.memory);
    const auto length = std::min<std::int64_t>(row, static_cast<std::int64_t>(kMaxLength));
    return std::all_of(values, values + length, [&](std::int64_t value) { return value == row; });
  }

  std::vector<std::int64_t> values_;
  std::vector<std::int64_t> offsets_{0};
  std::unique_ptr<PooledCollator> collator_;
};

TEST_F(PooledCollatorTest, MemoryIsUsedAgainOnceABatchHasDied) {
  auto first = collate(7);
  const auto second = collate(9);
  EXPECT_NE(first->memory, second->memory);
  EXPECT_TRUE(holds(*first, 7));
  EXPECT_TRUE(holds(*second, 9));
  const std::byte* const memory = first->memory;
  first.reset();
  const auto third = collate(8);
  EXPECT_EQ(third->memory, memory);
  EXPECT_TRUE(holds(*third, 8));
  EXPECT_TRUE(holds(*second, 9));
  EXPECT_EQ(collator_->pool->use().allocations, 2U);
}

TEST_F(PooledCollatorTest, ThreadsShareItAndEveryCutIsCounted) {
  constexpr int kRounds = 50;
  std::vector<int> wrong(3);
  std::vector<std::thread> threads;
  for (int& number : wrong) {
    threads.emplace_back([this, &number] {
      for (int round = 0; round < kRounds; ++round) {
        for (std::int64_t row = 0; row < kNumRows; ++row) {
          number += holds(*collate(row), row) ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0);
  // Rows 21 to 39 lose 1 to 19 values.
  EXPECT_EQ(collator_->truncated[0].samples, 3U * kRounds * 19U);
  EXPECT_EQ(collator_->truncated[0].tokens, 3U * kRounds * 190U);
}

}  // namespace
}  // namespace evenstride
