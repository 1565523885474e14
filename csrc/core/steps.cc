#include "core/steps.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "core/labels.h"
#include "core/memory.h"
#include "core/sort.h"

namespace evenstride {
namespace {

enum StreamName : std::uint64_t { kRests, kDropped, kRepeats, kOrder, kRanks };

// Batches of several buckets, each with its bucket.
template <class Entry>
struct Mixture {
  LargeVector<Batch<Entry>> batches;
  LargeVector<std::uint16_t> buckets;

  [[nodiscard]] std::size_t size() const { return batches.size(); }
  void append(std::span<const Batch<Entry>> more, std::size_t bucket) {
    batches.insert(batches.end(), more.begin(), more.end());
    buckets.insert(buckets.end(), more.size(), static_cast<std::uint16_t>(bucket));
  }
};

// The steps of one label: runs of one bucket's batches, then mixed ones.
struct LabelledSteps {
  std::size_t first_batch = 0;  // Of the runs, in the bucket's batches.
  std::size_t num_runs = 0;
  std::vector<std::size_t> mixed;  // Where each mixed step begins in the mixture.
};

template <class Entry>
class Former {
 public:
  Former(std::span<FilledBucket<Entry>> buckets, const Settlement& settlement,
         const StepOptions& options, std::uint64_t pad_to_multiple_of, Stream stream, Team& team)
      : buckets_(buckets),
        settlement_(settlement),
        options_(options),
        num_replicas_(static_cast<std::size_t>(options.num_replicas)),
        pad_to_multiple_of_(pad_to_multiple_of),
        stream_(stream),
        team_(team),
        labelled_(buckets.size()) {}

  Steps<Entry> form() {
    team_.for_each(buckets_.size(), [&](std::size_t k, int) { sort_by_cost(k); });
    if (options_.drop_last) {
      mix_rests();
    } else {
      hand_rests_on();
    }
    write();
    return std::move(steps_);
  }

 private:
  // Most expensive first. With drop_last the rest, drawn at random, stands last.
  void sort_by_cost(std::size_t k) {
    auto& batches = buckets_[k].batches;
    batches.reserve(batches.size() + buckets_[k].alone.size());
    batches.insert(batches.end(), buckets_[k].alone.begin(), buckets_[k].alone.end());
    if (num_replicas_ == 1) {
      return;
    }
    std::size_t sorted = batches.size();
    if (options_.drop_last) {
      shuffle(std::span(batches), Draws(stream_.substream(kRests).substream(k)), team_.watch());
      sorted -= batches.size() % num_replicas_;
    }
    LargeVector<Batch<Entry>> scratch(sorted);
    sort_by(
        std::span(batches).first(sorted), std::span(scratch), Direction::kDown,
        [this](const Batch<Entry>& batch) {
          return batch.count * width_of(batch.longest, pad_to_multiple_of_);
        },
        team_.watch());
  }

  void hand_rests_on() {
    Mixture<Entry> carried;
    for (std::size_t k = buckets_.size(); k-- > 0;) {
      const std::span<const Batch<Entry>> own = buckets_[k].batches;
      std::size_t first = 0;
      if (carried.size() > 0 && carried.size() + own.size() >= num_replicas_) {
        first = num_replicas_ - carried.size();
        carried.append(own.first(first), k);
        add_mixed_steps(std::exchange(carried, {}));
      }
      const std::size_t rest =
          carried.size() > 0 ? own.size() : (own.size() - first) % num_replicas_;
      add_runs(k, first, (own.size() - first - rest) / num_replicas_);
      carried.append(own.last(rest), k);
    }
    if (carried.size() > 0) {
      repeat_some(carried);
      add_mixed_steps(std::move(carried));
    }
  }

  void mix_rests() {
    Mixture<Entry> rests;
    for (std::size_t k = 0; k < buckets_.size(); ++k) {
      const std::span<const Batch<Entry>> own = buckets_[k].batches;
      const std::size_t rest = own.size() % num_replicas_;
      add_runs(k, 0, own.size() / num_replicas_);
      rests.append(own.last(rest), k);
    }
    std::vector<std::size_t> drawn(rests.size());
    std::iota(drawn.begin(), drawn.end(), std::size_t{0});
    shuffle(std::span(drawn), Draws(stream_.substream(kDropped)));
    const std::size_t num_dropped = rests.size() % num_replicas_;
    const std::unordered_set<std::size_t> dropped(
        drawn.begin(), drawn.begin() + static_cast<std::ptrdiff_t>(num_dropped));
    Mixture<Entry> kept;
    for (std::size_t i = 0; i < rests.size(); ++i) {
      if (dropped.contains(i)) {
        list_samples(rests.batches[i], steps_.dropped);
      } else {
        kept.append(std::span(rests.batches).subspan(i, 1), rests.buckets[i]);
      }
    }
    add_mixed_steps(std::move(kept));
  }

  // Completes the last step with batches of other steps, or its own where there are none.
  void repeat_some(Mixture<Entry>& last) {
    Mixture<Entry> others;
    for (std::size_t k = 0; k < labelled_.size(); ++k) {
      team_.watch().check();
      const LabelledSteps& steps = labelled_[k];
      others.append(std::span<const Batch<Entry>>(buckets_[k].batches)
                        .subspan(steps.first_batch, steps.num_runs * num_replicas_),
                    k);
    }
    for (std::size_t i = 0; i < mixed_.size(); ++i) {
      others.append(std::span<const Batch<Entry>>(mixed_.batches).subspan(i, 1), mixed_.buckets[i]);
    }
    if (others.size() == 0) {
      others = last;
    }
    std::vector<std::size_t> drawn(others.size());
    std::iota(drawn.begin(), drawn.end(), std::size_t{0});
    shuffle(std::span(drawn), Draws(stream_.substream(kRepeats)), team_.watch());
    for (std::size_t i = 0; i < settlement_.repeats; ++i) {
      const std::size_t other = drawn[i % drawn.size()];
      list_samples(others.batches[other], steps_.repeats);
      last.append(std::span<const Batch<Entry>>(others.batches).subspan(other, 1),
                  others.buckets[other]);
    }
  }

  static void list_samples(const Batch<Entry>& batch, std::vector<std::uint64_t>& to) {
    for (std::size_t i = 0; i < batch.count; ++i) {
      to.push_back(batch.index(i));
    }
  }

  void add_runs(std::size_t k, std::size_t first_batch, std::size_t num_runs) {
    labelled_[k].first_batch = first_batch;
    labelled_[k].num_runs = num_runs;
  }

  void add_mixed_steps(Mixture<Entry> mixture) {
    StepCheck check(team_.watch());
    for (std::size_t i = 0; i < mixture.size(); i += num_replicas_) {
      check(num_replicas_);
      const auto label = label_of(std::span(mixture.buckets).subspan(i, num_replicas_));
      labelled_[label].mixed.push_back(mixed_.size() + i);
    }
    mixed_.batches.insert(mixed_.batches.end(), mixture.batches.begin(), mixture.batches.end());
    mixed_.buckets.insert(mixed_.buckets.end(), mixture.buckets.begin(), mixture.buckets.end());
  }

  void write() {
    std::vector<std::size_t> first_steps;
    std::size_t num_steps = 0;
    for (const LabelledSteps& steps : labelled_) {
      first_steps.push_back(num_steps);
      steps_.steps_per_bucket.push_back(steps.num_runs + steps.mixed.size());
      num_steps += steps.num_runs + steps.mixed.size();
    }
    resize_in_pieces(steps_.batches, num_steps * num_replicas_, team_.watch());
    steps_.buckets.resize(num_steps * num_replicas_);
    team_.for_each(labelled_.size(), [&](std::size_t k, int) { write_label(k, first_steps[k]); });
  }

  void write_label(std::size_t k, std::size_t first_step) {
    const LabelledSteps& steps = labelled_[k];
    LargeVector<std::uint32_t> order(steps.num_runs + steps.mixed.size());
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    shuffle(std::span(order), Draws(stream_.substream(kOrder).substream(k)), team_.watch());
    std::size_t to = first_step * num_replicas_;
    StepCheck check(team_.watch());
    for (const std::uint32_t step : order) {
      check(num_replicas_);
      const bool is_run = step < steps.num_runs;
      const std::size_t from =
          is_run ? steps.first_batch + step * num_replicas_ : steps.mixed[step - steps.num_runs];
      const auto& batches = is_run ? buckets_[k].batches : mixed_.batches;
      for (std::size_t i = 0; i < num_replicas_; ++i, ++to) {
        steps_.batches[to] = batches[from + i];
        steps_.buckets[to] = is_run ? static_cast<std::uint16_t>(k) : mixed_.buckets[from + i];
      }
    }
    free_memory(buckets_[k].batches);
    draw_ranks(steps_, num_replicas_, first_step, first_step + order.size(),
               stream_.substream(kRanks), team_.watch());
  }

  std::span<FilledBucket<Entry>> buckets_;
  const Settlement& settlement_;
  const StepOptions& options_;
  std::size_t num_replicas_;
  std::uint64_t pad_to_multiple_of_;
  Stream stream_;
  Team& team_;
  std::vector<LabelledSteps> labelled_;
  Mixture<Entry> mixed_;  // Whole steps, one after the other.
  Steps<Entry> steps_;
};

}  // namespace

template <class Entry>
Steps<Entry> form_steps(std::span<FilledBucket<Entry>> buckets, const Settlement& settlement,
                        const StepOptions& options, std::uint64_t pad_to_multiple_of, Stream stream,
                        Team& team) {
  return Former<Entry>(buckets, settlement, options, pad_to_multiple_of, stream, team).form();
}

template <class Entry>
void draw_ranks(Steps<Entry>& steps, std::uint64_t num_replicas, std::size_t begin, std::size_t end,
                Stream stream, const Watch& watch) {
  const auto ranks = static_cast<std::size_t>(num_replicas);
  if (ranks == 1) {
    return;
  }
  StepCheck check(watch);
  for (std::size_t step = begin; step < end; ++step) {
    check(ranks);
    Draws draws(stream.substream(step));
    for (std::size_t i = ranks; i > 1; --i) {
      const auto other = static_cast<std::size_t>(draws.below(i)) + step * ranks;
      std::swap(steps.batches[step * ranks + i - 1], steps.batches[other]);
      std::swap(steps.buckets[step * ranks + i - 1], steps.buckets[other]);
    }
  }
}

template Steps<PackedEntry> form_steps(std::span<FilledBucket<PackedEntry>>, const Settlement&,
                                       const StepOptions&, std::uint64_t, Stream, Team&);
template Steps<WideEntry> form_steps(std::span<FilledBucket<WideEntry>>, const Settlement&,
                                     const StepOptions&, std::uint64_t, Stream, Team&);
template void draw_ranks(Steps<PackedEntry>&, std::uint64_t, std::size_t, std::size_t, Stream,
                         const Watch&);
template void draw_ranks(Steps<WideEntry>&, std::uint64_t, std::size_t, std::size_t, Stream,
                         const Watch&);

}  // namespace evenstride
