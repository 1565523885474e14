// Names, errors, the simple orders, and what all orders have in common.
#include "core/order.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "label_statistics.h"

namespace evenstride {
namespace {

using testing::Counts;
using testing::Labels;
using testing::seed_counts;

constexpr std::array<Order, 8> kLabelOrders = {
    Order::kStride,     Order::kBalanced,  Order::kStratified, Order::kShuffle,
    Order::kAntiRepeat, Order::kDiversity, Order::kDiversity2, Order::kRoundRobin,
};

OrderOptions options_of(Order order) {
  return {
      .order = order,
      .jitter = fixed_jitter(0.25),
      .accumulation_steps = 4,
  };
}

Labels ordered(const Counts& counts, Order order, Stream stream, int num_threads = 1) {
  Team team(num_threads);
  return order_steps(counts, options_of(order), stream, team);
}

void expect_error(const std::function<void()>& call, const std::string& sentence) {
  try {
    call();
    ADD_FAILURE() << "nothing thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), sentence);
  }
}

TEST(ParseOrder, AcceptsEveryName) {
  const std::map<std::string, Order> orders = {
      {"stride", Order::kStride},          {"balanced", Order::kBalanced},
      {"stratified", Order::kStratified},  {"mixed", Order::kMixed},
      {"shuffle", Order::kShuffle},        {"anti_repeat", Order::kAntiRepeat},
      {"diversity", Order::kDiversity},    {"diversity_2", Order::kDiversity2},
      {"round_robin", Order::kRoundRobin}, {"ascending", Order::kAscending},
      {"descending", Order::kDescending},
  };
  for (const auto& [name, order] : orders) {
    EXPECT_EQ(parse_order(name), order);
    EXPECT_EQ(name_of(order), name);
  }
  EXPECT_EQ(parse_order("weighted"), Order::kShuffle);
}

TEST(ParseOrder, ListsTheNamesWhereItKnowsNoSuchOrder) {
  for (const std::string name : {"foo", "", "Stride", "stride "}) {
    expect_error([&] { (void)parse_order(name); },
                 "`order` must be one of 'stride', 'balanced', 'stratified', 'mixed', 'shuffle', "
                 "'weighted', 'anti_repeat', 'diversity', 'diversity_2', 'round_robin', "
                 "'ascending', 'descending', but is '" +
                     name + "'.");
  }
}

TEST(FixedJitter, RoundsToTheNearestAndStaysBelowAHalf) {
  EXPECT_EQ(fixed_jitter(0.0), 0U);
  EXPECT_EQ(fixed_jitter(0.25), 1U << 29);
  EXPECT_EQ(fixed_jitter(0x1.4p-31), 1U);
  EXPECT_EQ(fixed_jitter(0x1.8p-31), 2U);
  EXPECT_EQ(fixed_jitter(0x1.fffffffffffffp-2), (1U << 30) - 1);
}

TEST(FixedJitter, SaysWhatIsWrong) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([] { (void)fixed_jitter(0.5); }, "`jitter` must be in [0, 0.5), but is 0.5.");
  expect_error([] { (void)fixed_jitter(-0.1); }, "`jitter` must be in [0, 0.5), but is -0.1.");
  expect_error([=] { (void)fixed_jitter(nan); }, "`jitter` must be in [0, 0.5), but is nan.");
}

TEST(OrderSteps, SaysWhichValueIsWrong) {
  const Stream stream(0);
  Team team(1);
  const auto call = [&](const Counts& counts, const OrderOptions& options) {
    return [=, &team] { (void)order_steps(counts, options, stream, team); };
  };
  expect_error(call(Counts(32768), {}),
               "`steps_per_bucket` must hold at most 32000 buckets, but holds 32768.");
  expect_error(call({1, ~std::uint64_t{0}}, {}),
               "`steps_per_bucket[1]` must be at most 4294967295, but is 18446744073709551615.");
  expect_error(call({0x1'0000'0000}, {}),
               "`steps_per_bucket[0]` must be at most 4294967295, but is 4294967296.");
  expect_error(call({0xFFFF'FFFF, 1}, {}),
               "`steps_per_bucket` must add up to at most 4294967295, but adds up to 4294967296.");
  expect_error(call({1}, {.jitter = 1U << 30}),
               "`jitter` must be below 2^30, half a stride, but is 1073741824.");
  expect_error(call({1}, {.accumulation_steps = 0}),
               "`accumulation_steps` must be at least 1, but is 0.");
  expect_error(call({1}, {.order = Order::kMixed}),
               "`order` must be an order of labels, but is 'mixed'.");
  expect_error(call({1}, {.order = Order::kAscending}),
               "`order` must be an order of labels, but is 'ascending'.");
  expect_error(call({1}, {.order = Order::kDescending}),
               "`order` must be an order of labels, but is 'descending'.");
}

TEST(OrderSteps, EveryLabelComesAsOftenAsItsBucketHasSteps) {
  Draws random(Stream(1));
  for (int trial = 0; trial < 300; ++trial) {
    const Counts counts = testing::random_counts(random);
    for (const Order order : kLabelOrders) {
      ASSERT_EQ(testing::counts_of(ordered(counts, order, Stream(random.next())), counts.size()),
                counts)
          << name_of(order) << ", trial " << trial;
    }
  }
}

TEST(OrderSteps, NoStepsGiveNoLabels) {
  for (const Order order : kLabelOrders) {
    EXPECT_EQ(ordered({}, order, Stream(0)), Labels{});
    EXPECT_EQ(ordered({0, 0, 0}, order, Stream(0)), Labels{});
    EXPECT_EQ(ordered({0, 3, 0}, order, Stream(0)), Labels({1, 1, 1}));
  }
}

TEST(OrderSteps, IsTheSameForEveryNumberOfThreads) {
  for (const Order order : kLabelOrders) {
    const Labels expected = ordered(seed_counts(), order, Stream::of(1, 2));
    for (const int num_threads : {2, 3, 8}) {
      EXPECT_EQ(ordered(seed_counts(), order, Stream::of(1, 2), num_threads), expected)
          << name_of(order) << ", " << num_threads << " threads";
    }
  }
}

TEST(OrderSteps, AnotherStreamGivesAnotherOrderButForRoundRobin) {
  for (const Order order : kLabelOrders) {
    EXPECT_EQ(ordered(seed_counts(), order, Stream::of(0, 0)) ==
                  ordered(seed_counts(), order, Stream::of(0, 1)),
              order == Order::kRoundRobin)
        << name_of(order);
  }
}

TEST(OrderSteps, AsManyBucketsAsThereCanBeAreOrdered) {
  const Counts counts(kMostBuckets, 1);
  for (const Order order : kLabelOrders) {
    if (order != Order::kBalanced && order != Order::kStratified) {  // They would take seconds.
      EXPECT_EQ(testing::counts_of(ordered(counts, order, Stream(0)), counts.size()), counts)
          << name_of(order);
    }
  }
}

// Epoch plans, and so the states of running trainings, depend on these: a change of one is a new
// major version.
TEST(OrderSteps, GoldenHashes) {
  Counts few(200);  // All windows are longer than the horizon of `balanced`.
  for (std::size_t bucket = 0; bucket < few.size(); ++bucket) {
    few[bucket] = 1 + bucket % 4;
  }
  const auto hash = [](const Counts& counts, Order order) {
    return testing::hash(ordered(counts, order, Stream::of(1, 2)));
  };
  struct Golden {
    Order order;
    std::uint64_t of_seeds;
    std::uint64_t of_few;
  };
  const auto goldens = std::to_array<Golden>({
      {.order = Order::kStride, .of_seeds = 0x40A89B5C423E51A4, .of_few = 0x537044A0E20D14B5},
      {.order = Order::kBalanced, .of_seeds = 0x9028FEEA43EE8D7C, .of_few = 0xED1319BC50555575},
      {.order = Order::kStratified, .of_seeds = 0xA586DEB18F66ACEC, .of_few = 0xDA0DA98CC87C8DDD},
      {.order = Order::kShuffle, .of_seeds = 0xCE3AF7DD1A64E31C, .of_few = 0x7D38D94AEA1D54B5},
      {.order = Order::kAntiRepeat, .of_seeds = 0xAC2583C421E43CEC, .of_few = 0xD809D1C4480265CD},
      {.order = Order::kDiversity, .of_seeds = 0x24CE5122C6FF6B24, .of_few = 0x5CCD14E6903D4905},
      {.order = Order::kDiversity2, .of_seeds = 0x99D874826912A914, .of_few = 0x70503178E5974B4D},
      {.order = Order::kRoundRobin, .of_seeds = 0x1A1971E3859EB984, .of_few = 0x67D0BB79AA6D94FD},
  });
  for (const Golden& golden : goldens) {
    EXPECT_EQ(hash(seed_counts(), golden.order), golden.of_seeds)
        << name_of(golden.order) << std::hex << ": 0x" << hash(seed_counts(), golden.order);
    EXPECT_EQ(hash(few, golden.order), golden.of_few)
        << name_of(golden.order) << std::hex << ": 0x" << hash(few, golden.order);
  }
  EXPECT_EQ(goldens.size(), kLabelOrders.size());
}

// Returns how often each sequence comes in 60,000 epochs.
std::map<Labels, double> frequencies(const Counts& counts, Order order) {
  std::map<Labels, double> result;
  Team team(1);
  for (std::uint64_t epoch = 0; epoch < 60'000; ++epoch) {
    result[order_steps(counts, options_of(order), Stream::of(9, epoch), team)] += 1.0 / 60'000;
  }
  return result;
}

// Adds the probability of every sequence that goes on from `labels`, by the comment in
// core/order.h.
void add_by_definition(const Counts& left, Order order, const Labels& labels, double probability,
                       std::map<Labels, double>& result) {
  if (testing::sum(left) == 0) {
    result[labels] += probability;
    return;
  }
  const auto excluded = [&](std::size_t k, std::size_t steps_back) {
    return steps_back <= labels.size() && labels[labels.size() - steps_back] == k;
  };
  std::vector<double> weights(left.begin(), left.end());
  const auto without_recent = [&](std::size_t memory, double factor) {
    std::vector<double> reduced = weights;
    for (std::size_t k = 0; k < left.size(); ++k) {
      if (excluded(k, 1) || (memory == 2 && excluded(k, 2))) {
        reduced[k] *= factor;
      }
    }
    return reduced;
  };
  const auto weight_of = [](const std::vector<double>& values) {
    double total = 0;
    for (const double value : values) {
      total += value;
    }
    return total;
  };
  std::vector<double> drawn = weights;
  if (order == Order::kAntiRepeat) {
    drawn = without_recent(1, 0.5);
  } else if (order != Order::kShuffle) {
    for (std::size_t memory = order == Order::kDiversity2 ? 2 : 1; memory > 0; --memory) {
      const std::vector<double> reduced = without_recent(memory, 0.0);
      if (weight_of(reduced) > 0) {
        drawn = reduced;
        break;
      }
    }
  }
  for (std::size_t k = 0; k < left.size(); ++k) {
    if (drawn[k] > 0) {
      Counts rest = left;
      --rest[k];
      Labels longer = labels;
      longer.push_back(static_cast<std::uint16_t>(k));
      add_by_definition(rest, order, longer, probability * drawn[k] / weight_of(drawn), result);
    }
  }
}

TEST(DrawnOrders, EverySequenceIsAsFrequentAsByDefinition) {
  for (const Counts& counts : {Counts{2, 1, 3}, Counts{1, 2, 1, 1}, Counts{4, 2}}) {
    for (const Order order :
         {Order::kShuffle, Order::kAntiRepeat, Order::kDiversity, Order::kDiversity2}) {
      std::map<Labels, double> expected;
      add_by_definition(counts, order, {}, 1.0, expected);
      for (const auto& [labels, frequency] : frequencies(counts, order)) {
        EXPECT_NEAR(frequency, expected[labels], 0.008) << name_of(order);
        EXPECT_GT(expected[labels], 0.0) << name_of(order);
        expected.erase(labels);
      }
      for (const auto& missing : expected) {
        EXPECT_LT(missing.second, 0.001) << name_of(order);
      }
    }
  }
}

std::size_t tail(const Labels& labels) {
  return testing::runs(labels).back();
}

TEST(DrawnOrders, DiversityEndsInATailOfThousandsOfOneBucketOnTheSeedCounts) {
  EXPECT_GT(tail(ordered(seed_counts(), Order::kDiversity, Stream::of(0, 0))), 1000U);
  EXPECT_GT(tail(ordered(seed_counts(), Order::kDiversity2, Stream::of(0, 0))), 1000U);
  EXPECT_LT(tail(ordered(seed_counts(), Order::kShuffle, Stream::of(0, 0))), 100U);
}

TEST(DrawnOrders, DiversityRepeatsNothingBeforeItsTail) {
  Labels labels = ordered(seed_counts(), Order::kDiversity, Stream::of(0, 0));
  labels.resize(labels.size() - tail(labels));
  EXPECT_EQ(testing::longest_run(labels), 1U);
}

TEST(DrawnOrders, AntiRepeatRepeatsLessThanShuffle) {
  const auto share = [](Order order) {
    return testing::share_in_runs_of_one(ordered(seed_counts(), order, Stream::of(0, 0)));
  };
  EXPECT_GT(share(Order::kAntiRepeat), share(Order::kShuffle) + 0.1);
}

TEST(RoundRobin, GoesRoundTheBucketsThatHaveStepsLeft) {
  EXPECT_EQ(ordered({2, 0, 1, 4}, Order::kRoundRobin, Stream(0)), Labels({0, 2, 3, 0, 3, 3, 3}));
}

TEST(Stratified, GroupsTwoStepsAtLeast) {
  Team team(1);
  const auto grouped = [&](std::uint64_t accumulation_steps) {
    return order_steps(seed_counts(),
                       {.order = Order::kStratified, .accumulation_steps = accumulation_steps},
                       Stream(3), team);
  };
  EXPECT_EQ(grouped(1), grouped(2));
  EXPECT_NE(grouped(2), grouped(3));
}

}  // namespace
}  // namespace evenstride
