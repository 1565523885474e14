// Times batches of ids and masks, beside what bounds them: writing as many bytes, and reading as
// many rows from memory that no cache holds. Staging for a device too, whose bound is the reading.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collate/collate.h"
#include "core/plan.h"
#include "core/random.h"
#include "cuda/pad_tile.h"
#include "cuda/staging.h"
#include "inputs.h"

namespace evenstride {
namespace {

using Samples = std::vector<std::int64_t>;

constexpr std::size_t kPlannedBatches = 1'000;
constexpr std::size_t kShortBatches = 8'000;
constexpr std::size_t kPlannedSamples = 200'000;
constexpr std::size_t kShortSamples = 4'000'000;
constexpr std::size_t kShortRows = 64;
constexpr std::uint64_t kLongestShortRow = 128;

// What a batch's memory is made of.
struct alignas(64) Line {
  std::byte bytes[64];
};

// Tokens of samples that lie one after the other, and batches of samples.
struct Corpus {
  DType wire;
  std::vector<std::int64_t> offsets{0};
  Buffer<std::byte> tokens;
  std::vector<Samples> batches;

  Corpus(DType dtype, const std::vector<std::uint16_t>& lengths, std::vector<Samples> all_batches)
      : wire(dtype),
        offsets(offsets_of(lengths)),
        tokens(static_cast<std::size_t>(offsets.back()) * size_of(dtype)),
        batches(std::move(all_batches)) {
    const Stream stream(1);
    const auto num_tokens = static_cast<std::size_t>(offsets.back());
    for (std::size_t i = 0; i < num_tokens; ++i) {
      const auto token = static_cast<std::uint32_t>(stream(i) % 30'000);
      std::memcpy(tokens.data() + i * size_of(dtype), &token, size_of(dtype));
    }
  }

  static std::vector<std::int64_t> offsets_of(const std::vector<std::uint16_t>& lengths) {
    std::vector<std::int64_t> offsets{0};
    for (const std::uint16_t length : lengths) {
      offsets.push_back(offsets.back() + length);
    }
    return offsets;
  }

  [[nodiscard]] std::size_t length(std::int64_t sample) const {
    const auto i = static_cast<std::size_t>(sample);
    return static_cast<std::size_t>(offsets[i + 1] - offsets[i]);
  }
  [[nodiscard]] const std::byte* row(std::int64_t sample) const {
    const auto offset = static_cast<std::size_t>(offsets[static_cast<std::size_t>(sample)]);
    return tokens.data() + offset * size_of(wire);
  }
};

// Batches of `data/`, in the order of training.
Corpus planned_corpus(DType wire) {
  const auto lengths = lognormal_lengths(kPlannedSamples);
  PlanOptions options;
  options.limits = given_limits();
  options.jitter = fixed_jitter(0.25);
  Planner planner(std::span<const std::uint16_t>(lengths), given_edges(), options);
  const EpochPlan plan = planner.plan(0, {});
  const auto& indices = std::get<Buffer<std::uint32_t>>(plan.indices);
  std::vector<Samples> batches(std::min(kPlannedBatches, plan.offsets.size() - 1));
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    const auto begin = static_cast<std::size_t>(plan.offsets[batch]);
    const auto end = static_cast<std::size_t>(plan.offsets[batch + 1]);
    batches[batch].assign(indices.data() + begin, indices.data() + end);
  }
  return {wire, lengths, std::move(batches)};
}

// Batches of short rows, drawn from many.
Corpus short_corpus(DType wire) {
  Draws draws(Stream(2));
  std::vector<std::uint16_t> lengths(kShortSamples);
  std::ranges::generate(
      lengths, [&] { return static_cast<std::uint16_t>(1 + draws.below(kLongestShortRow)); });
  std::vector<Samples> batches(kShortBatches, Samples(kShortRows));
  for (Samples& batch : batches) {
    std::ranges::generate(batch,
                          [&] { return static_cast<std::int64_t>(draws.below(kShortSamples)); });
  }
  return {wire, lengths, std::move(batches)};
}

std::shared_ptr<const Collator> collator_of(const Corpus& corpus) {
  const auto column =
      std::make_shared<Column>("ids", "", corpus.wire, std::vector<std::uint64_t>{}, true);
  column->append({.values = corpus.tokens.data(),
                  .num_cells = static_cast<std::uint64_t>(corpus.offsets.back()),
                  .num_rows = corpus.offsets.size() - 1,
                  .rows = Chunk::Rows::kOffsets,
                  .bounds = {reinterpret_cast<const std::byte*>(corpus.offsets.data()),
                             corpus.offsets.size(), PackedIntegers::Type::kInt64}});
  return std::make_shared<const Collator>(
      std::vector<Output>{{.key = "ids", .column = column},
                          {.key = "mask", .source = Output::Source::kMask, .column = column}},
      std::nullopt, 1);
}

// Writes a batch as one does by hand: zeros, then row by row.
template <class Wire>
void write_rows(const Corpus& corpus, const Samples& samples, std::size_t width, std::int64_t* ids,
                std::int64_t* mask) {
  std::fill_n(ids, samples.size() * width, 0);
  std::fill_n(mask, samples.size() * width, 0);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto* const row = reinterpret_cast<const Wire*>(corpus.row(samples[i]));
    std::copy_n(row, corpus.length(samples[i]), ids + i * width);
    std::fill_n(mask + i * width, corpus.length(samples[i]), 1);
  }
}

void write_row_by_row(const Corpus& corpus, const Samples& samples, std::size_t width,
                      std::int64_t* ids, std::int64_t* mask) {
  if (corpus.wire == DType::kUInt16) {
    write_rows<std::uint16_t>(corpus, samples, width, ids, mask);
  } else {
    write_rows<std::int32_t>(corpus, samples, width, ids, mask);
  }
}

// What every case works with. The memory is the same for all batches, as a pool's is.
struct Bench {
  explicit Bench(Corpus made)
      : corpus(std::move(made)),
        shared_collator(collator_of(corpus)),
        collator(*shared_collator),
        staging(shared_collator) {
    for (const Samples& samples : corpus.batches) {
      collator.look_up(samples, batch);
      bytes.push_back(batch.layout.bytes);
      widths.push_back(batch.layout.arrays[0].width);
      for (const std::int64_t sample : samples) {
        tokens += corpus.length(sample);
      }
    }
  }

  [[nodiscard]] bool is_right() {
    for (std::size_t b = 0; b < corpus.batches.size(); b += 10) {
      const Samples& samples = corpus.batches[b];
      const std::size_t values = samples.size() * widths[b];
      std::vector<std::int64_t> ids(values);
      std::vector<std::int64_t> mask(values);
      write_row_by_row(corpus, samples, widths[b], ids.data(), mask.data());
      collator.look_up(samples, batch);
      collator.write(batch, memory);
      const auto& arrays = batch.layout.arrays;
      if (std::memcmp(memory + arrays[0].offset, ids.data(), values * 8) != 0 ||
          std::memcmp(memory + arrays[1].offset, mask.data(), values * 8) != 0) {
        return false;
      }
    }
    return true;
  }

  Corpus corpus;
  std::shared_ptr<const Collator> shared_collator;
  const Collator& collator;
  Staging staging;
  BatchRows batch;
  StagedBatch staged;
  Buffer<Line> lines{(std::size_t{4} << 20) / sizeof(Line)};
  std::byte* memory = reinterpret_cast<std::byte*>(lines.data());
  Buffer<Line> slab_lines{(std::size_t{4} << 20) / sizeof(Line)};
  std::byte* slab = reinterpret_cast<std::byte*>(slab_lines.data());
  std::vector<std::size_t> bytes;
  std::vector<std::size_t> widths;
  std::uint64_t tokens = 0;
};

using Work = void (*)(Bench&, std::size_t);

void collate(Bench& bench, std::size_t b) {
  bench.collator.look_up(bench.corpus.batches[b], bench.batch);
  bench.collator.write(bench.batch, bench.memory);
}

void stage(Bench& bench, std::size_t b) {
  bench.collator.look_up(bench.corpus.batches[b], bench.batch);
  bench.staging.lay_out(bench.batch, bench.staged);
  bench.staging.write(bench.batch, bench.staged, bench.slab);
}

// The kernel's body on the host, by one lane.
void stage_and_pad(Bench& bench, std::size_t b) {
  stage(bench, b);
  PadBatch& pad = bench.staged.pad;
  pad.slab = bench.slab;
  pad.out = bench.memory;
  for (const PadGroup& group : std::span(pad.groups).first(pad.num_groups)) {
    for (std::uint32_t row = 0; row < pad.num_rows; ++row) {
      for (std::uint32_t tile = 0; tile < group.tiles; ++tile) {
        pad_tile<1>(pad, group, row, tile, 0);
      }
    }
  }
}

void row_by_row(Bench& bench, std::size_t b) {
  auto* const ids = reinterpret_cast<std::int64_t*>(bench.memory);
  const Samples& samples = bench.corpus.batches[b];
  write_row_by_row(bench.corpus, samples, bench.widths[b], ids,
                   ids + samples.size() * bench.widths[b]);
}

void only_write(Bench& bench, std::size_t b) {
  std::memset(bench.memory, 1, bench.bytes[b]);
}

void only_read(Bench& bench, std::size_t b) {
  for (const std::int64_t sample : bench.corpus.batches[b]) {
    std::memcpy(bench.memory, bench.corpus.row(sample),
                bench.corpus.length(sample) * size_of(bench.corpus.wire));
  }
}

// Returns the batches of one kind, made when they are first asked for; one kind is kept at a time.
Bench& bench_of(Corpus (*make)(DType), DType wire) {
  static std::unique_ptr<Bench> bench;
  static Corpus (*made)(DType) = nullptr;
  if (made != make || bench->corpus.wire != wire) {
    bench.reset();
    bench = std::make_unique<Bench>(make(wire));
    made = make;
  }
  return *bench;
}

// Each iteration is a batch; they come in turn, so that their rows have left the caches again.
void run(benchmark::State& state, Corpus (*make)(DType), DType wire, Work work) {
  Bench& bench = bench_of(make, wire);
  if (!bench.is_right()) {
    state.SkipWithError("a batch is wrong");
    return;
  }
  std::size_t b = 0;
  while (state.KeepRunning()) {
    work(bench, b);
    benchmark::ClobberMemory();
    b = b + 1 == bench.bytes.size() ? 0 : b + 1;
  }
  const auto batches = static_cast<double>(bench.bytes.size());
  state.counters["tokens"] = static_cast<double>(bench.tokens) / batches;
  double bytes = 0;
  for (const std::size_t of_batch : bench.bytes) {
    bytes += static_cast<double>(of_batch);
  }
  state.counters["bytes"] = bytes / batches;
}

void add(const std::string& batches, Corpus (*make)(DType)) {
  const std::pair<const char*, Work> works[] = {
      {"collate", &collate},       {"stage", &stage},           {"stage_and_pad", &stage_and_pad},
      {"row_by_row", &row_by_row}, {"only_write", &only_write}, {"only_read", &only_read}};
  for (const DType wire : {DType::kUInt16, DType::kInt32}) {
    for (const auto& [name, work] : works) {
      const std::string title = batches + "/" + std::string(name_of(wire)) + "/" + name;
      benchmark::RegisterBenchmark(title.c_str(), [=, work = work](benchmark::State& state) {
        run(state, make, wire, work);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace evenstride

int main(int argc, char** argv) {
  evenstride::add("planned", &evenstride::planned_corpus);
  evenstride::add("short", &evenstride::short_corpus);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
