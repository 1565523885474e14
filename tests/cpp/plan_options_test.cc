// Options of a plan that are not allowed, each with its whole sentence, and the choice of edges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "samples.h"

namespace evenstride {
namespace {

using testing::message_of;
using testing::Values;

constexpr std::uint64_t kEnd = std::uint64_t{1} << 63;

PlanOptions valid_options() {
  PlanOptions options;
  options.limits = {.token_budget = 100};
  return options;
}

const Values& some_lengths() {
  static const Values kLengths = {3, 40, 7};
  return kLengths;
}

template <class Change>
std::string rejection(Change&& change) {
  PlanOptions options = valid_options();
  change(options);
  return message_of([&] { const Planner planner(testing::view(some_lengths()), {}, options); });
}

TEST(PlanOptions, CountsAreInTheirRange) {
  const auto message = [](const std::string& name, std::uint64_t value) {
    return "`" + name + "` must be in [1, 2**63), but is " + std::to_string(value) + ".";
  };
  for (const std::uint64_t bad : {std::uint64_t{0}, kEnd, kUnlimited}) {
    EXPECT_EQ(rejection([=](PlanOptions& options) { options.limits.token_budget = bad; }),
              message("token_budget", bad));
    EXPECT_EQ(rejection([=](PlanOptions& options) { options.limits.batch_size_multiple = bad; }),
              message("batch_size_multiple", bad));
    EXPECT_EQ(rejection([=](PlanOptions& options) { options.limits.pad_to_multiple_of = bad; }),
              message("pad_to_multiple_of", bad));
    EXPECT_EQ(rejection([=](PlanOptions& options) { options.window = bad; }),
              message("window", bad));
    EXPECT_EQ(rejection([=](PlanOptions& options) { options.accumulation_steps = bad; }),
              message("accumulation_steps", bad));
  }
  for (const std::uint64_t bad : {std::uint64_t{0}, kEnd, kUnlimited - 1}) {
    EXPECT_EQ(rejection([=](PlanOptions& options) { options.limits.max_batch_size = bad; }),
              message("max_batch_size", bad));
  }
  EXPECT_EQ(rejection([](PlanOptions& options) { options.limits.max_batch_size = kUnlimited; }),
            "nothing was thrown");
  EXPECT_EQ(rejection([](PlanOptions& options) {
              options.limits = {.token_budget = kEnd - 1,
                                .max_batch_size = kEnd - 1,
                                .batch_size_multiple = kEnd - 1,
                                .pad_to_multiple_of = kEnd - 1};
              options.window = kEnd - 1;
              options.accumulation_steps = kEnd - 1;
            }),
            "nothing was thrown");
}

TEST(PlanOptions, OptionsFitOneAnother) {
  EXPECT_EQ(rejection([](PlanOptions& options) { options.limits.pad_to_multiple_of = 101; }),
            "`token_budget` must be at least pad_to_multiple_of = 101, but is 100.");
  EXPECT_EQ(rejection([](PlanOptions& options) { options.num_threads = 0; }),
            "`num_threads` must be at least 1, but is 0.");
  for (const auto& [composition, name] :
       {std::pair{Composition::kWindow, "window"}, std::pair{Composition::kFrozen, "frozen"}}) {
    EXPECT_EQ(
        rejection([&](PlanOptions& options) {
          options.order = Order::kMixed;
          options.composition = composition;
        }),
        "`composition` must be 'shuffle' for order='mixed', but is '" + std::string(name) + "'.");
  }
}

TEST(PlanOptions, StepsAreInTheirRange) {
  Planner planner(testing::view(some_lengths()), {}, valid_options());
  const auto message = [&](const StepOptions& steps) {
    const std::string settling = message_of([&] { (void)planner.settle(steps); });
    EXPECT_EQ(message_of([&] { (void)planner.plan(0, steps); }), settling);
    return settling;
  };
  EXPECT_EQ(message(testing::ranks(0)), "`num_replicas` must be in [1, 2**63), but is 0.");
  EXPECT_EQ(message(testing::ranks(kEnd)),
            "`num_replicas` must be in [1, 2**63), but is 9223372036854775808.");
  EXPECT_EQ(message({.steps_per_epoch = 0}), "`steps_per_epoch` must be in [1, 2**63), but is 0.");
  EXPECT_EQ(message({.steps_per_epoch = 4}), "`steps_per_epoch` must be in [2, 3], but is 4.");
  EXPECT_EQ(message(testing::ranks(5, true)),
            "`drop_last` must leave at least 1 step, but leaves 0: there are 2 batches for "
            "num_replicas = 5.");
}

TEST(PlanOptions, ErrorsOfLengthsAndEdgesComeThrough) {
  const auto message = [](const Values& lengths, const Values& edges) {
    return message_of(
        [&] { const Planner planner(testing::view(lengths), edges, valid_options()); });
  };
  EXPECT_EQ(message({}, {}), "`lengths` must have at least 1 sample, but has 0 samples.");
  EXPECT_EQ(message({5, 101}, {}),
            "`lengths[1]` must be in [0, 100] for token_budget = 100, but is 101; pass "
            "too_long='drop' to leave such samples out, or too_long='alone' to give each a batch "
            "of its own.");
  EXPECT_EQ(message({5}, {7, 7}),
            "`buckets[1]` must be at least 8, for edges to strictly increase from above 0, but is "
            "7.");
}

TEST(InnerEdges, GivenOnesAreCheckedAndMerged) {
  const auto edges = [](const Values& given, std::uint64_t merge_buckets) {
    return inner_edges_for(testing::view(some_lengths()), given, merge_buckets, valid_options());
  };
  EXPECT_EQ(edges({5, 10, 20}, 1), (Values{5, 10, 20}));
  EXPECT_EQ(edges({5, 10, 20}, 2), (Values{10}));
  EXPECT_EQ(message_of([&] { (void)edges({5, 5}, 1); }),
            "`buckets[1]` must be at least 6, for edges to strictly increase from above 0, but is "
            "5.");
  EXPECT_EQ(message_of([&] { (void)edges({5}, 0); }),
            "`merge_buckets` must be in [1, 2**63), but is 0.");
}

TEST(InnerEdges, ANumberIsFoundForTheSamplesThatAreAdmitted) {
  testing::Random random(1);
  Values lengths = testing::random_lengths(random, 3000, 50);
  PlanOptions options = valid_options();
  options.limits.token_budget = 500;
  const auto edges = [&](std::uint64_t num_buckets, std::uint64_t merge_buckets = 1) {
    return inner_edges_for(testing::view(lengths), num_buckets, merge_buckets, options);
  };
  const Values of_all = edges(6);
  EXPECT_EQ(of_all.size(), 5U);
  EXPECT_TRUE(std::ranges::is_sorted(of_all));
  EXPECT_LE(of_all.back(), 50U);
  EXPECT_EQ(edges(6, 2), (Values{of_all[1], of_all[3]}));
  EXPECT_EQ(edges(1), Values());
  lengths.insert(lengths.end(), 1000, 10'000);  // None of these changes the edges.
  options.admission.too_long = TooLong::kDrop;
  EXPECT_EQ(edges(6), of_all);
  EXPECT_EQ(message_of([&] { (void)edges(0); }), "`buckets` must be in [1, 2**63), but is 0.");
}

}  // namespace
}  // namespace evenstride
