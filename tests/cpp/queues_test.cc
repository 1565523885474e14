// The rules of a delivery, one step at a time: order, room, fairness, failures.
#include "loader/queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "delivery_rules.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::DeliveryRules;
using testing::Random;
using testing::Values;
using Outcome = Delivery::Outcome;

std::optional<std::uint64_t> claim_now(DeliveryQueues& queues) {
  if (queues.nothing_left() || !queues.has_room()) {
    return std::nullopt;
  }
  return queues.claim();
}

// Claims all that there is room for.
Values claim_all(DeliveryQueues& queues) {
  Values batches;
  while (const auto batch = claim_now(queues)) {
    batches.push_back(*batch);
  }
  return batches;
}

void put_now(DeliveryQueues& queues, std::uint64_t batch) {
  queues.put(batch, std::make_shared<std::uint64_t>(batch));
}

void fail_now(DeliveryQueues& queues, std::uint64_t batch, const std::string& message) {
  if (!queues.is_unwanted(batch)) {
    queues.fail(batch, std::make_exception_ptr(std::runtime_error(message)));
  }
}

// Returns the batch, "end", "closed", "nothing yet", or what was thrown.
std::string take_now(DeliveryQueues& queues, std::uint32_t target) {
  const auto result = queues.take(target);
  if (!result) {
    return "nothing yet";
  }
  if (result->failure) {
    return testing::message_of<std::runtime_error>(
        [&] { std::rethrow_exception(result->failure); });
  }
  switch (result->taken.outcome) {
    case Outcome::kEnd:
      return "end";
    case Outcome::kClosed:
      return "closed";
    default:
      EXPECT_EQ(*std::static_pointer_cast<std::uint64_t>(result->taken.parcel),
                result->taken.batch);
      return std::to_string(result->taken.batch);
  }
}

DeliveryOptions random_options(Random& random) {
  DeliveryOptions options{.num_batches = random.below(40),
                          .num_targets = static_cast<std::uint32_t>(random.between(1, 6)),
                          .depth = static_cast<std::uint32_t>(random.between(1, 4)),
                          .num_producers = static_cast<std::uint32_t>(random.between(1, 4)),
                          .in_order = random.one_in(2)};
  if (random.one_in(2)) {
    for (std::uint64_t batch = 0; batch < options.num_batches; ++batch) {
      if (random.one_in(3)) {
        options.taken.push_back(batch);
      }
    }
  }
  return options;
}

TEST(Queues, MatchTheirRulesStepByStep) {
  Random random(2);
  std::uint64_t ended = 0;
  for (int round = 0; round < 1000; ++round) {
    const DeliveryOptions options = random_options(random);
    DeliveryQueues queues(options);
    DeliveryRules rules(options);
    const std::uint64_t stalled = random.below(2 * options.num_targets);
    Values making;
    std::string last;
    for (int step = 0; step < 200; ++step) {
      if (random.one_in(2)) {
        const auto batch = claim_now(queues);
        ASSERT_EQ(batch, rules.claim());
        if (batch) {
          making.push_back(*batch);
        }
      }
      if (!making.empty() && making.size() >= random.between(1, options.num_producers)) {
        const auto chosen =
            making.begin() + static_cast<std::ptrdiff_t>(random.below(making.size()));
        put_now(queues, *chosen);
        rules.put(*chosen);
        making.erase(chosen);
      }
      const auto target = static_cast<std::uint32_t>(random.below(options.num_targets));
      if (target != stalled) {
        last = take_now(queues, target);
        ASSERT_EQ(last, rules.take(target));
      }
      const auto depths = queues.depths();
      ASSERT_EQ(Values(depths.begin(), depths.end()), rules.depths());
    }
    ended += last == "end";
  }
  EXPECT_GT(ended, 300U);
}

TEST(Queues, AStalledTargetInOrderStopsTheOthersAtItsDepth) {
  DeliveryQueues queues({.num_batches = 20, .num_targets = 2, .depth = 3});
  EXPECT_EQ(claim_all(queues), (Values{0, 1, 2, 3, 4, 5}));
  for (const std::uint64_t batch : {1U, 3U, 5U}) {
    put_now(queues, batch);
    EXPECT_EQ(take_now(queues, 1), std::to_string(batch));
  }
  EXPECT_EQ(claim_all(queues), Values{});
  put_now(queues, 0);
  EXPECT_EQ(take_now(queues, 0), "0");
  EXPECT_EQ(claim_all(queues), (Values{6, 7}));
}

TEST(Queues, ABatchThatTakesLongHoldsTheWindow) {
  const DeliveryOptions options{
      .num_batches = 100, .num_targets = 2, .depth = 2, .num_producers = 3, .in_order = false};
  DeliveryQueues queues(options);
  Values claimed;
  while (const auto batch = claim_now(queues)) {
    claimed.push_back(*batch);
    if (*batch != 0) {
      put_now(queues, *batch);
      EXPECT_EQ(take_now(queues, 0), std::to_string(*batch));
    }
  }
  EXPECT_EQ(claimed, testing::indices_below(7));
  EXPECT_EQ(queues.numbers().later().size(), 6U);
  put_now(queues, 0);
  EXPECT_EQ(take_now(queues, 1), "0");
  EXPECT_EQ(claim_all(queues), (Values{7, 8, 9, 10}));
}

TEST(Queues, ABatchThatTookLongIsFirstInItsQueue) {
  DeliveryQueues queues({.num_batches = 100, .depth = 4, .in_order = false});
  EXPECT_EQ(claim_all(queues), testing::indices_below(4));
  for (const std::uint64_t batch : {2U, 3U, 0U, 1U}) {
    put_now(queues, batch);
  }
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    EXPECT_EQ(take_now(queues, 0), std::to_string(batch));
  }
}

TEST(Queues, SixTargetsThatKeepUpAreFedEvenly) {
  for (const bool in_order : {true, false}) {
    DeliveryQueues queues({.num_batches = 600, .num_targets = 6, .depth = 8, .in_order = in_order});
    for (std::uint64_t batch = 0; batch < 600; ++batch) {
      ASSERT_EQ(claim_now(queues), batch);
      put_now(queues, batch);
      const auto depths = queues.depths();
      const auto [least, most] = std::minmax_element(depths.begin(), depths.end());
      ASSERT_LE(*most - *least, 1U);
      if (batch >= 20) {
        ASSERT_EQ(take_now(queues, static_cast<std::uint32_t>((batch - 20) % 6)),
                  std::to_string(batch - 20));
      }
    }
  }
}

TEST(Queues, AFailureInOrderIsThrownInItsTurnAndThenToAll) {
  DeliveryQueues queues({.num_batches = 100, .num_targets = 2, .depth = 4});
  EXPECT_EQ(claim_all(queues), testing::indices_below(8));
  fail_now(queues, 5, "five");
  EXPECT_TRUE(queues.nothing_left());
  EXPECT_TRUE(queues.is_unwanted(6));
  for (const std::uint64_t batch : {0U, 1U, 2U, 3U}) {
    put_now(queues, batch);
  }
  EXPECT_EQ(take_now(queues, 0), "0");
  EXPECT_EQ(take_now(queues, 0), "2");
  EXPECT_EQ(take_now(queues, 0), "nothing yet");
  put_now(queues, 4);
  EXPECT_EQ(take_now(queues, 1), "1");
  EXPECT_EQ(take_now(queues, 1), "3");
  EXPECT_EQ(take_now(queues, 1), "five");
  EXPECT_EQ(take_now(queues, 0), "five");
  EXPECT_EQ(queues.numbers().first(), 4U);
}

TEST(Queues, ATargetWhoseNextBatchWouldBeAfterTheFailureMeetsIt) {
  DeliveryQueues queues({.num_batches = 100, .num_targets = 2, .depth = 4});
  EXPECT_EQ(claim_all(queues), testing::indices_below(8));
  put_now(queues, 1);
  put_now(queues, 3);
  EXPECT_EQ(take_now(queues, 1), "1");
  fail_now(queues, 2, "two");
  EXPECT_EQ(take_now(queues, 1), "two");
}

TEST(Queues, TheFirstOfTwoFailuresInOrderIsThrown) {
  for (const bool is_late_first : {true, false}) {
    DeliveryQueues queues({.num_batches = 100, .depth = 4});
    EXPECT_EQ(claim_all(queues), testing::indices_below(4));
    fail_now(queues, is_late_first ? 2 : 1, is_late_first ? "two" : "one");
    fail_now(queues, is_late_first ? 1 : 2, is_late_first ? "one" : "two");
    put_now(queues, 0);
    EXPECT_EQ(take_now(queues, 0), "0");
    EXPECT_EQ(take_now(queues, 0), "one");
  }
}

TEST(Queues, AFailureThatWasThrownStays) {
  DeliveryQueues queues({.num_batches = 100, .num_targets = 2, .depth = 4});
  EXPECT_EQ(claim_all(queues), testing::indices_below(8));
  put_now(queues, 1);
  EXPECT_EQ(take_now(queues, 1), "1");
  fail_now(queues, 2, "two");
  EXPECT_EQ(take_now(queues, 1), "two");
  EXPECT_TRUE(queues.is_unwanted(0));
  fail_now(queues, 0, "zero");
  EXPECT_EQ(take_now(queues, 0), "two");
}

TEST(Queues, AFailureOutOfOrderIsThrownAtOnce) {
  DeliveryQueues queues({.num_batches = 100, .num_targets = 2, .depth = 2, .in_order = false});
  EXPECT_EQ(claim_all(queues), testing::indices_below(4));
  put_now(queues, 0);
  fail_now(queues, 3, "three");
  fail_now(queues, 1, "one");
  EXPECT_TRUE(queues.nothing_left());
  EXPECT_TRUE(queues.is_unwanted(1));
  EXPECT_EQ(take_now(queues, 0), "three");
  EXPECT_EQ(take_now(queues, 1), "three");
  EXPECT_EQ(queues.numbers().num_taken(), 0U);
}

TEST(Queues, ABatchInTheMakingMayBeAnybodysOutOfOrder) {
  DeliveryQueues queues({.num_batches = 1, .num_targets = 3, .depth = 2, .in_order = false});
  EXPECT_EQ(claim_all(queues), Values{0});
  EXPECT_EQ(take_now(queues, 2), "nothing yet");
  put_now(queues, 0);
  EXPECT_EQ(take_now(queues, 2), "0");
  EXPECT_EQ(take_now(queues, 0), "end");
}

TEST(Queues, ATargetInOrderEndsBeforeTheOthersDo) {
  DeliveryQueues queues({.num_batches = 4, .taken = {1}, .num_targets = 4, .depth = 1});
  EXPECT_EQ(claim_all(queues), (Values{0, 2, 3}));
  EXPECT_EQ(take_now(queues, 3), "end");
  EXPECT_EQ(take_now(queues, 2), "nothing yet");
}

TEST(Queues, SayWhichOptionIsWrong) {
  const auto message_with = [](auto change) {
    return testing::message_of([&] {
      DeliveryOptions options{.num_batches = 4};
      change(options);
      const DeliveryQueues queues(options);
    });
  };
  EXPECT_EQ(message_with([](DeliveryOptions& options) { options.num_targets = 0; }),
            "`num_targets` must be in [1, 2**63), but is 0.");
  EXPECT_EQ(message_with([](DeliveryOptions& options) { options.depth = 0; }),
            "`depth` must be in [1, 2**63), but is 0.");
  EXPECT_EQ(message_with([](DeliveryOptions& options) { options.num_producers = 0; }),
            "`num_producers` must be in [1, 2**63), but is 0.");
  EXPECT_EQ(message_with([](DeliveryOptions& options) { options.taken = {4}; }),
            "`taken` must hold batches in [0, 4), but holds 4.");
}

}  // namespace
}  // namespace evenstride
