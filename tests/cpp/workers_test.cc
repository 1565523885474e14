// Worker threads: the batches that a collator makes alone, and an end at any time.
#include "loader/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "processes.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::Random;
using Outcome = Delivery::Outcome;

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::int64_t kNumRows = 100;

// Rows of random lengths, and a plan that visits each once.
class WorkersTest : public ::testing::Test {
 protected:
  WorkersTest() {
    Random random(4);
    for (std::int64_t row = 0; row < kNumRows; ++row) {
      for (std::uint64_t i = random.below(30); i > 0; --i) {
        values_.push_back(static_cast<std::uint16_t>(random.next()));
      }
      row_offsets_.push_back(static_cast<std::int64_t>(values_.size()));
      indices_.push_back((row * 37) % kNumRows);
    }
    while (offsets_.back() < kNumRows) {
      const auto size = static_cast<std::int64_t>(random.between(1, 5));
      offsets_.push_back(std::min(offsets_.back() + size, kNumRows));
    }

    auto column = std::make_shared<Column>("input_ids", "", DType::kUInt16,
                                           std::vector<std::uint64_t>{}, true);
    column->append({.values = reinterpret_cast<const std::byte*>(values_.data()),
                    .num_cells = values_.size(),
                    .num_rows = static_cast<std::uint64_t>(kNumRows),
                    .rows = Chunk::Rows::kOffsets,
                    .bounds = {reinterpret_cast<const std::byte*>(row_offsets_.data()),
                               row_offsets_.size(), PackedIntegers::Type::kInt64}});
    collator_ = std::make_shared<Collator>(
        std::vector<Output>{{.key = "input_ids", .column = column},
                            {.key = "mask", .source = Output::Source::kMask, .column = column}},
        std::nullopt, 8);
    make_ = collate_into(collator_, pool_, std::make_shared<GivenBlocks>());
  }

  [[nodiscard]] std::uint64_t num_batches() const { return offsets_.size() - 1; }

  [[nodiscard]] std::shared_ptr<Delivery> deliver(std::uint64_t num_batches,
                                                  std::uint32_t depth = 3) const {
    return std::make_shared<Delivery>(DeliveryOptions{
        .num_batches = num_batches, .num_targets = 2, .depth = depth, .num_producers = 3});
  }

  [[nodiscard]] PlannedBatches plan() const { return {.indices = indices_, .offsets = offsets_}; }

  // What the collator makes of plan batch k, in a call of its own.
  [[nodiscard]] std::vector<std::byte> expected(std::uint64_t k) const {
    const auto begin = static_cast<std::size_t>(offsets_.at(k));
    const auto end = static_cast<std::size_t>(offsets_.at(k + 1));
    BatchRows rows;
    collator_->look_up(std::span(indices_).subspan(begin, end - begin), rows);
    const auto slab = pool_->take(rows.layout.bytes);
    std::memset(slab->memory, 0, rows.layout.bytes);
    collator_->write(rows, slab->memory);
    return {slab->memory, slab->memory + rows.layout.bytes};
  }

  // Between outputs there may be bytes that nobody writes, so the outputs are compared.
  void expect_batch(const Delivery::Taken& taken, std::uint64_t k) const {
    ASSERT_EQ(taken.outcome, Outcome::kBatch);
    const auto made = std::static_pointer_cast<MadeBatch>(taken.parcel);
    const std::vector<std::byte> bytes = expected(k);
    ASSERT_EQ(made->layout.bytes, bytes.size());
    ASSERT_EQ(made->layout.num_samples,
              static_cast<std::uint64_t>(offsets_.at(k + 1) - offsets_.at(k)));
    for (const Layout::Array& array : made->layout.arrays) {
      ASSERT_EQ(std::memcmp(made->memory() + array.offset, bytes.data() + array.offset,
                            made->layout.num_samples * array.width * sizeof(std::int64_t)),
                0)
          << "plan batch " << k;
    }
  }

  std::vector<std::uint16_t> values_;
  std::vector<std::int64_t> row_offsets_{0};
  std::vector<std::int64_t> indices_;
  std::vector<std::int64_t> offsets_{0};
  std::shared_ptr<const Collator> collator_;
  std::shared_ptr<SlabPool> pool_ = SlabPool::make(16);
  MakeBatch make_;
};

TEST_F(WorkersTest, MakeWhatTheCollatorMakesAloneForAnyNumberOfThreads) {
  for (const int num_threads : {1, 2, 5}) {
    const auto delivery = deliver(num_batches());
    const Workers workers(make_, plan(), delivery, num_threads);
    for (std::uint64_t batch = 0; batch < num_batches(); ++batch) {
      expect_batch(delivery->take(static_cast<std::uint32_t>(batch % 2), kLong), batch);
    }
    EXPECT_EQ(delivery->take(0, kLong).outcome, Outcome::kEnd);
  }
}

TEST_F(WorkersTest, ReadIndicesOfEveryType) {
  const std::vector<std::int32_t> signed_indices(indices_.begin(), indices_.end());
  const std::vector<std::uint32_t> unsigned_indices(indices_.begin(), indices_.end());
  for (const PlannedBatches& batches :
       {PlannedBatches{.indices = std::span(signed_indices), .offsets = offsets_},
        PlannedBatches{.indices = std::span(unsigned_indices), .offsets = offsets_}}) {
    const auto delivery = deliver(4);
    const Workers workers(make_, batches, delivery, 2);
    for (std::uint64_t batch = 0; batch < 4; ++batch) {
      expect_batch(delivery->take(static_cast<std::uint32_t>(batch % 2), kLong), batch);
    }
  }
}

TEST_F(WorkersTest, ARankMakesEachStridethPlanBatchFromItsFirst) {
  const auto delivery = deliver(5);
  PlannedBatches batches = plan();
  batches.first = 2;
  batches.stride = 4;
  const Workers workers(make_, batches, delivery, 2);
  for (std::uint64_t batch = 0; batch < 5; ++batch) {
    expect_batch(delivery->take(static_cast<std::uint32_t>(batch % 2), kLong), 2 + 4 * batch);
  }
}

TEST_F(WorkersTest, WhatABatchThrowsIsThrownToItsConsumerAfterTheBatchesBefore) {
  const auto bad = static_cast<std::size_t>(offsets_.at(3));
  indices_.at(bad) = kNumRows;
  BatchRows rows;
  const std::string message = testing::message_of<std::out_of_range>(
      [&] { collator_->look_up(std::span(indices_).subspan(bad, 1), rows); });
  ASSERT_NE(message, "nothing was thrown");
  const auto delivery = deliver(num_batches());
  const Workers workers(make_, plan(), delivery, 3);
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    expect_batch(delivery->take(static_cast<std::uint32_t>(batch % 2), kLong), batch);
  }
  const auto thrown =
      testing::message_of<std::out_of_range>([&] { (void)delivery->take(1, kLong); });
  EXPECT_EQ(thrown, message);
}

TEST_F(WorkersTest, SayThatThePlanHasNoSuchBatch) {
  const auto delivery = deliver(num_batches());
  const std::int64_t offsets[] = {0, 5};
  const Workers workers(make_, {.indices = indices_, .offsets = offsets}, delivery, 1);
  EXPECT_EQ(delivery->take(0, kLong).batch, 0U);
  EXPECT_EQ(testing::message_of<std::out_of_range>([&] { (void)delivery->take(1, kLong); }),
            "The plan has no batch 1: it has 2 offsets.");
}

TEST_F(WorkersTest, SayThatABatchLiesOutsideTheIndices) {
  for (const std::int64_t end : {std::int64_t{-1}, kNumRows + 1}) {
    const auto delivery = deliver(1);
    const std::int64_t offsets[] = {0, end};
    const Workers workers(make_, {.indices = indices_, .offsets = offsets}, delivery, 1);
    EXPECT_EQ(testing::message_of<std::out_of_range>([&] { (void)delivery->take(0, kLong); }),
              "Batch 0 of the plan must lie in its 100 indices, but is [0, " + std::to_string(end) +
                  ").");
  }
}

TEST_F(WorkersTest, NeedAThread) {
  EXPECT_EQ(testing::message_of([&] { const Workers workers(make_, plan(), deliver(1), 0); }),
            "`num_threads` must be at least 1, but is 0.");
}

TEST_F(WorkersTest, MakeABatchInABlockThatWasGivenAndElseInASlab) {
  constexpr std::size_t kNumBlocks = 4;
  const auto given = std::make_shared<GivenBlocks>();
  BatchRows rows;
  collator_->look_up(std::span(indices_).first(static_cast<std::size_t>(offsets_.at(1))), rows);
  const std::size_t capacity = rows.layout.bytes;  // So that larger batches do not fit.
  std::vector<const std::byte*> memories;
  for (std::size_t i = 0; i < kNumBlocks; ++i) {
    const auto slab = pool_->take(capacity);
    memories.push_back(slab->memory);
    given->put({.address = reinterpret_cast<std::uintptr_t>(slab->memory),
                .capacity = capacity,
                .owner = std::const_pointer_cast<Slab>(slab)});
  }

  const auto delivery = deliver(num_batches());
  const Workers workers(collate_into(collator_, pool_, given), plan(), delivery, 1);
  std::size_t num_in_blocks = 0;
  for (std::uint64_t batch = 0; batch < num_batches(); ++batch) {
    const Delivery::Taken taken = delivery->take(static_cast<std::uint32_t>(batch % 2), kLong);
    expect_batch(taken, batch);
    const auto made = std::static_pointer_cast<MadeBatch>(taken.parcel);
    const bool is_in_block = made->layout.bytes <= capacity && num_in_blocks < kNumBlocks;
    ASSERT_EQ(made->block.has_value(), is_in_block);
    ASSERT_EQ(made->slab == nullptr, is_in_block);
    if (is_in_block) {
      EXPECT_EQ(made->memory(), memories.at(num_in_blocks));
      ++num_in_blocks;
    }
  }
  EXPECT_EQ(num_in_blocks, kNumBlocks);
  EXPECT_EQ(given->size(), 0U);
  EXPECT_EQ(pool_->use().lent, 0U);
}

TEST_F(WorkersTest, EndAtAnyTimeAndGiveBackTheirMemory) {
  for (std::uint64_t num_taken = 0; num_taken < 20; ++num_taken) {
    const auto delivery = deliver(num_batches());
    auto workers = std::make_unique<Workers>(make_, plan(), delivery, 3);
    for (std::uint64_t batch = 0; batch < num_taken; ++batch) {
      (void)delivery->take(static_cast<std::uint32_t>(batch % 2), kLong);
    }
    workers.reset();
    EXPECT_EQ(delivery->take(0, kLong).outcome, Outcome::kClosed);
    EXPECT_EQ(pool_->use().lent, 0U);
  }
}

TEST_F(WorkersTest, EndInAForkedProcessWithoutTheirThreads) {
  auto delivery = deliver(num_batches(), 1);
  auto workers = std::make_unique<Workers>(make_, plan(), delivery, 3);
  ASSERT_TRUE(testing::eventually([&] { return delivery->waits().producers_s > 0; }));
  EXPECT_TRUE(testing::holds_in_a_fork([&] {
    workers.reset();
    delivery.reset();
    pool_.reset();
    return true;
  }));
  expect_batch(delivery->take(0, kLong), 0);
}

#ifdef __linux__
TEST_F(WorkersTest, HaveNamesAndLeaveSignalsToTheMainThread) {
  const auto delivery = deliver(num_batches(), 1);
  const Workers workers(make_, plan(), delivery, 2);
  const auto num_named = [] {
    std::size_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      const std::string text((std::istreambuf_iterator<char>(status)), {});
      const bool is_named =
          text.starts_with("Name:\tevenstride-0\n") || text.starts_with("Name:\tevenstride-1\n");
      const std::size_t blocked = text.find("SigBlk:\t");
      if (is_named && blocked != std::string::npos) {
        constexpr std::uint64_t kInterrupt = std::uint64_t{1} << 1;  // SIGINT is 2.
        constexpr std::uint64_t kFault = std::uint64_t{1} << 10;     // SIGSEGV is 11.
        const std::uint64_t mask = std::stoull(text.substr(blocked + 8, 16), nullptr, 16);
        count += (mask & (kInterrupt | kFault)) == kInterrupt;
      }
    }
    return count;
  };
  EXPECT_TRUE(testing::eventually([&] { return num_named() == 2; }));
}
#endif

}  // namespace
}  // namespace evenstride
