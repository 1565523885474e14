// Whole passes over a fake device under every schedule, and races that must not stay hidden there.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/lane.h"
#include "fake_driver.h"
#include "played_loader.h"
#include "samples.h"
#include "staged.h"

namespace evenstride {
namespace {

using testing::Blocks;
using testing::Corpus;
using testing::FakeDriver;
using testing::FakeSchedule;
using testing::Play;
using testing::PlayedLoader;
using testing::Random;
using Calls = std::vector<std::string>;

constexpr const char* kImage = "the kernel";
constexpr int kSeeds = 100;

struct Seen {
  int mismatches = 0;
  Calls faults;
  std::size_t num_contexts = 0;
};

// Plays one pass, with a table that `change` has changed.
template <class Change>
Seen play(const Play& options, FakeSchedule schedule, std::uint64_t seed, const Change& change) {
  static const Corpus kCorpus(1, 90);
  Random random(seed);
  FakeDriver fake({.schedule = schedule, .seed = seed});
  Driver table = fake.table();
  change(table, fake.table());
  Lane lane(table, 0, kImage);
  Seen seen;
  {
    PlayedLoader loader(fake, lane, kCorpus, options);
    seen.mismatches = loader.play(random);
  }
  seen.faults = fake.faults();
  seen.num_contexts = FakeDriver::num_contexts();
  return seen;
}

constexpr FakeSchedule kSchedules[] = {FakeSchedule::kPrompt, FakeSchedule::kLazy,
                                       FakeSchedule::kRandom};

std::vector<Play> plays() {
  std::vector<Play> all;
  for (const Blocks blocks : {Blocks::kTorch, Blocks::kRing}) {
    for (const std::size_t num_consumers : {1U, 2U}) {
      for (const std::size_t depth : {0U, 1U, 3U}) {
        all.push_back({.blocks = blocks, .num_consumers = num_consumers, .depth = depth});
      }
    }
  }
  return all;
}

TEST(LaneSchedules, EveryBatchIsSeenAsItWasMade) {
  std::uint64_t seed = 0;
  for (const Play& options : plays()) {
    for (const FakeSchedule schedule : kSchedules) {
      const int num_seeds = schedule == FakeSchedule::kRandom ? 30 : 5;
      for (int i = 0; i < num_seeds; ++i) {
        const Seen seen = play(options, schedule, ++seed, [](Driver&, const Driver&) {});
        ASSERT_EQ(seen.mismatches, 0)
            << static_cast<int>(options.blocks) << " " << options.num_consumers << " "
            << options.depth << " " << static_cast<int>(schedule) << " " << seed;
        ASSERT_EQ(seen.faults, Calls{});
        ASSERT_EQ(seen.num_contexts, 0U);
      }
    }
  }
}

TEST(LaneSchedules, SeveralThreadsShareALane) {
  const Corpus corpus(1, 90);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    FakeDriver fake({.schedule = FakeSchedule::kRandom, .seed = seed});
    Lane lane(fake.table(), 0, kImage);
    std::atomic<int> num_mismatches{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Random random(4 * seed + t);
        const Blocks blocks = t % 2 == 0 ? Blocks::kTorch : Blocks::kRing;
        PlayedLoader loader(fake, lane, corpus, {.blocks = blocks, .num_consumers = 2});
        num_mismatches += loader.play(random);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(num_mismatches, 0);
    EXPECT_EQ(fake.faults(), Calls{});
  }
}

// Races, each made by a table that does less, or something earlier, than it should.
const Driver* driver;
std::optional<CuStream> lane_stream;

void remember_lane_stream(Driver& table) {
  lane_stream.reset();
  table.stream_create = [](CuStream* stream, unsigned flags, int priority) {
    const CuResult result = driver->stream_create(stream, flags, priority);
    lane_stream = *stream;
    return result;
  };
}

// Expects a race to show in one pass of ten at least: in which of them is a matter of chance.
template <class Change>
void expect_found(const Play& options, const Change& change) {
  int num_found = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Seen seen = play(options, FakeSchedule::kRandom, static_cast<std::uint64_t>(seed),
                           [&](Driver& table, const Driver& original) {
                             driver = &original;
                             remember_lane_stream(table);
                             change(table);
                           });
    num_found += seen.mismatches > 0 || !seen.faults.empty() ? 1 : 0;
  }
  EXPECT_GE(num_found, kSeeds / 10);
}

constexpr Play kTorch{.blocks = Blocks::kTorch};
constexpr Play kRing{.blocks = Blocks::kRing};

TEST(LaneRaces, AnEventThatSaysDoneTooEarlyIsFound) {
  const auto change = [](Driver& table) { table.event_query = [](CuEvent) { return kCuSuccess; }; };
  expect_found(kTorch, change);
  expect_found(kRing, change);
}

TEST(LaneRaces, AHostThatDoesNotWaitIsFound) {
  const auto change = [](Driver& table) {
    table.event_synchronize = [](CuEvent) { return kCuSuccess; };
  };
  expect_found(kTorch, change);
  expect_found(kRing, change);
}

TEST(LaneRaces, AConsumerThatDoesNotWaitIsFound) {
  const auto change = [](Driver& table) {
    table.stream_wait_event = [](CuStream stream, CuEvent event, unsigned flags) {
      return stream == lane_stream ? driver->stream_wait_event(stream, event, flags) : kCuSuccess;
    };
  };
  expect_found(kTorch, change);
  expect_found(kRing, change);
}

TEST(LaneRaces, OutputsThatAreWrittenWhileTheModelReadsThemAreFound) {
  const auto change = [](Driver& table) {
    table.stream_wait_event = [](CuStream stream, CuEvent event, unsigned flags) {
      return stream == lane_stream ? kCuSuccess : driver->stream_wait_event(stream, event, flags);
    };
  };
  expect_found(kRing, change);
  expect_found({.blocks = Blocks::kRing, .num_consumers = 2}, change);
}

struct Launch {
  CuFunction function;
  std::array<unsigned, 3> sizes;
  CuStream stream;
  PadBatch batch;
};
std::optional<Launch> late;

TEST(LaneRaces, AnEventBeforeItsLaunchIsFound) {
  const auto change = [](Driver& table) {
    late.reset();
    table.launch = [](CuFunction function, unsigned grid_x, unsigned grid_y, unsigned, unsigned x,
                      unsigned, unsigned, unsigned, CuStream stream, void** parameters, void**) {
      late = {.function = function,
              .sizes = {grid_x, grid_y, x},
              .stream = stream,
              .batch = *static_cast<const PadBatch*>(parameters[0])};
      return kCuSuccess;
    };
    table.event_record = [](CuEvent event, CuStream stream) {
      const CuResult result = driver->event_record(event, stream);
      if (late && stream == lane_stream) {
        void* parameters[] = {&late->batch};
        (void)driver->launch(late->function, late->sizes[0], late->sizes[1], 1, late->sizes[2], 1,
                             1, 0, late->stream, parameters, nullptr);
        late.reset();
      }
      return result;
    };
  };
  expect_found(kTorch, change);
  expect_found(kRing, change);
}

TEST(LaneRaces, AnEventOfALeasesEndThatIsNotRecordedIsFound) {
  const auto change = [](Driver& table) {
    table.event_record = [](CuEvent event, CuStream stream) {
      return stream == lane_stream ? driver->event_record(event, stream) : kCuSuccess;
    };
  };
  expect_found(kRing, change);
}

// What the log of a pass shows once slabs, blocks and events are there.
class LaneLog : public ::testing::TestWithParam<Blocks> {};

TEST_P(LaneLog, ABatchCostsOneCopyOneLaunchOneEventAndNoWait) {
  const Corpus corpus(1, 90);
  Random random(1);
  FakeDriver fake;
  Lane lane(fake.table(), 0, kImage);
  PlayedLoader loader(fake, lane, corpus, {.blocks = GetParam(), .num_batches = 50});
  ASSERT_EQ(loader.play(random), 0);
  fake.forget_calls();
  ASSERT_EQ(loader.play(random), 0);
  const std::size_t empty = 50 - fake.count("cuMemcpyHtoDAsync");
  EXPECT_LT(empty, 25U);  // Batches without samples.
  EXPECT_EQ(fake.count("cuLaunchKernel"), 50 - empty);
  EXPECT_EQ(fake.count("cuEventRecord"), GetParam() == Blocks::kTorch ? 50U : 100U);
  EXPECT_EQ(fake.count("cuCtxPushCurrent"), fake.count("cuCtxPopCurrent"));
  for (const char* const call :
       {"cuMemAlloc", "cuMemFree", "cuMemHostRegister", "cuMemHostUnregister", "cuEventCreate",
        "cuEventSynchronize", "cuStreamSynchronize"}) {
    EXPECT_EQ(fake.count(call), 0U) << call;
  }
  EXPECT_EQ(fake.faults(), Calls{});
}

INSTANTIATE_TEST_SUITE_P(Blocks, LaneLog, ::testing::Values(Blocks::kTorch, Blocks::kRing));

}  // namespace
}  // namespace evenstride
