// Times the permutation of samples by cells, deal and shuffle apart, beside one shuffle of them
// all.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buckets.h"
#include "core/cells.h"
#include "core/entries.h"
#include "core/random.h"
#include "inputs.h"

namespace evenstride {
namespace {

constexpr std::size_t kCellSamples = 32 * 1024;

// Arguments: number of samples, number of threads.
class Dealer {
 public:
  explicit Dealer(const benchmark::State& state)
      : lengths_(lognormal_lengths(static_cast<std::size_t>(state.range(0)))),
        classes_(given_edges(), given_limits(), {}, lengths_.size()),
        team_(static_cast<int>(state.range(1))),
        found_(survey(view(), classes_, given_limits(), {}, team_)) {
    grouping_.group_of_class.assign(classes_.num_classes(), Grouping::kNowhere);
    for (std::size_t k = 0; k < classes_.num_buckets(); ++k) {
      grouping_.group_of_class[k] = k;
      grouping_.is_whole.push_back(false);
    }
    grouping_.cell_samples = kCellSamples;
  }

  const Cells<PackedEntry>& deal(std::uint64_t epoch) {
    cells_.emplace(view(), classes_, found_, grouping_, Stream::of(0, epoch), workspace_, team_);
    return *cells_;
  }

  // Shuffles every cell into memory of its member's own; visit(entries) sees each cell once.
  template <class Visit>
  void shuffle_all(std::uint64_t epoch, Visit&& visit) {
    std::vector<std::vector<PackedEntry>> buffers(static_cast<std::size_t>(team_.size()));
    const std::size_t largest = cells_->largest();
    team_.for_each(cells_->num_cells(), [&](std::size_t cell, int member) {
      std::vector<PackedEntry>& mine = buffers[static_cast<std::size_t>(member)];
      mine.resize(largest);
      const auto entries = std::span(mine).first(cells_->samples(cell));
      cells_->read_shuffled(cell, Stream::of(1, epoch).substream(cell), entries);
      visit(std::span<const PackedEntry>(entries));
    });
  }

  // Whether each sample is in one cell, with its length.
  bool is_right() {
    std::vector<unsigned char> seen(lengths_.size());
    deal(0);
    shuffle_all(0, [&](std::span<const PackedEntry> entries) {
      for (const PackedEntry& entry : entries) {
        seen[entry.index()] += entry.length() == lengths_[entry.index()] ? 1 : 2;
      }
    });
    for (const unsigned char times : seen) {
      if (times != 1) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] std::span<const std::uint16_t> lengths() const { return lengths_; }

 private:
  [[nodiscard]] Lengths view() const { return std::span<const std::uint16_t>(lengths_); }

  std::vector<std::uint16_t> lengths_;
  Classes classes_;
  Team team_;
  Survey found_;
  Grouping grouping_;
  Workspace workspace_;
  std::optional<Cells<PackedEntry>> cells_;
};

void report(benchmark::State& state) {
  const auto samples = static_cast<std::size_t>(state.range(0));
  count_samples(state, samples);
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<std::int64_t>(sizeof(PackedEntry)));
}

void deal(benchmark::State& state) {
  Dealer dealer(state);
  if (!dealer.is_right()) {
    state.SkipWithError("a cell has the wrong samples");
    return;
  }
  std::uint64_t epoch = 0;
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(&dealer.deal(++epoch));
  }
  report(state);
}

void read_shuffled(benchmark::State& state) {
  Dealer dealer(state);
  if (!dealer.is_right()) {
    state.SkipWithError("a cell has the wrong samples");
    return;
  }
  std::uint64_t epoch = 0;
  while (state.KeepRunning()) {
    dealer.shuffle_all(++epoch, [](std::span<const PackedEntry> entries) {
      benchmark::DoNotOptimize(entries.data());
    });
  }
  report(state);
}

// The baseline: every swap but the last few misses the caches once the samples outgrow them.
void one_shuffle(benchmark::State& state) {
  const auto lengths = lognormal_lengths(static_cast<std::size_t>(state.range(0)));
  std::vector<PackedEntry> entries;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    entries.emplace_back(lengths[i], i);
  }
  std::uint64_t epoch = 0;
  while (state.KeepRunning()) {
    shuffle(std::span(entries), Draws(Stream::of(0, ++epoch)));
    benchmark::DoNotOptimize(entries.data());
  }
  report(state);
}

void inputs(benchmark::internal::Benchmark* benchmark, std::int64_t most_threads) {
  benchmark->ArgNames({"samples", "threads"})->Unit(benchmark::kMicrosecond)->UseRealTime();
  for (const std::int64_t samples : {100'000, 1'000'000, 10'000'000}) {
    for (std::int64_t threads = 1; threads <= most_threads; ++threads) {
      benchmark->Args({samples, threads});
    }
  }
}

void parallel(benchmark::internal::Benchmark* benchmark) {
  inputs(benchmark, 2);
}

void serial(benchmark::internal::Benchmark* benchmark) {
  inputs(benchmark, 1);
}

BENCHMARK(deal)->Apply(parallel);
BENCHMARK(read_shuffled)->Apply(parallel);
BENCHMARK(one_shuffle)->Apply(serial);

}  // namespace
}  // namespace evenstride
