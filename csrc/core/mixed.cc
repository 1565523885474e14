#include "core/mixed.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/complete.h"
#include "core/sort.h"

namespace evenstride {
namespace {

enum StreamName : std::uint64_t { kDeal, kShuffle, kTail, kSteps, kRanks, kLast };

constexpr std::size_t kCellSamples = std::size_t{16} * 1024;
constexpr std::uint64_t kSpare = 200;  // One optimizer step in this many is added.

[[noreturn]] void throw_misfit() {
  throw std::invalid_argument("`settlement` must be of the same lengths and options.");
}

std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace

template <class Entry>
MixedEpoch<Entry>::MixedEpoch(const Lengths& lengths, const Classes& classes, const Survey& survey,
                              const MixedOptions& options, Stream stream, Workspace& workspace,
                              Team& team)
    : classes_(classes), watch_(team.watch()), options_(options), stream_(stream) {
  // More than one step a sample is no different, and could overflow.
  options_.accumulation_steps =
      std::min<std::uint64_t>(options_.accumulation_steps, survey.admitted.samples);
  Grouping grouping;
  grouping.group_of_class.assign(classes.num_classes(), Grouping::kNowhere);
  std::fill_n(grouping.group_of_class.begin(), classes.alone() + 1, std::size_t{0});
  grouping.is_whole = {false};
  grouping.cell_samples = kCellSamples;
  const Cells<Entry> cells(lengths, classes, survey, grouping, stream.substream(kDeal), workspace,
                           team);
  resize_in_pieces(entries_, static_cast<std::size_t>(survey.admitted.samples), watch_);
  resize_in_pieces(indices_, entries_.size(), watch_);
  std::vector<std::size_t> begins{0};
  for (std::size_t cell = 0; cell < cells.num_cells(); ++cell) {
    begins.push_back(begins.back() + cells.samples(cell));
  }
  team.for_each(cells.num_cells(), [&](std::size_t cell, int) {
    cells.read_shuffled(cell, stream.substream(kShuffle).substream(cell),
                        std::span(entries_).subspan(begins[cell], cells.samples(cell)));
    team.watch().advance(kFillWork * cells.samples(cell));
  });
}

// Returns how many batches samples [begin, end) make when sorted.
template <class Entry>
std::uint64_t MixedEpoch<Entry>::batches_of(std::size_t begin, std::size_t end) const {
  std::vector<Entry> sorted(entries_.begin() + static_cast<std::ptrdiff_t>(begin),
                            entries_.begin() + static_cast<std::ptrdiff_t>(end));
  std::vector<Entry> scratch(sorted.size());
  sort_by_length(std::span(sorted), std::span(scratch), Direction::kUp, watch_);
  FillLimits limits = options_.limits;
  limits.batch_size_multiple = 1;  // The cut gives it up before it makes too many batches.
  return count_batches(std::span<const Entry>(sorted), limits, watch_);
}

// Returns the largest end, at most `end`, such that samples [begin, end) make at most
// `max_batches`.
template <class Entry>
std::size_t MixedEpoch<Entry>::largest_end(std::size_t begin, std::size_t end,
                                           std::uint64_t max_batches) const {
  std::size_t fits = std::min(end, begin + static_cast<std::size_t>(max_batches));
  std::size_t reach = fits - begin;
  while (fits < end) {
    reach = std::min(2 * reach, end - begin);
    if (batches_of(begin, begin + reach) > max_batches) {
      break;
    }
    fits = begin + reach;
  }
  std::size_t too_far = fits < end ? begin + reach : end + 1;
  while (too_far - fits > 1 && fits < end) {
    const std::size_t middle = fits + (too_far - fits) / 2;
    (batches_of(begin, middle) <= max_batches ? fits : too_far) = middle;
  }
  return fits;
}

template <class Entry>
Settlement MixedEpoch<Entry>::settle() const {
  const std::optional<std::uint64_t> wanted = options_.steps.steps_per_epoch;
  const Settlement settled = settle_naturally();
  return wanted && *wanted != settled.steps ? settle_on(*wanted) : settled;
}

template <class Entry>
Settlement MixedEpoch<Entry>::settle_naturally() const {
  const std::uint64_t num_replicas = options_.steps.num_replicas;
  const std::uint64_t group = num_replicas * options_.accumulation_steps;
  const std::uint64_t samples = entries_.size();
  std::uint64_t natural = 0;
  std::uint64_t batches = 0;
  for (std::size_t begin = 0; begin < entries_.size(); ++natural) {
    const std::size_t end = largest_end(begin, entries_.size(), group);
    batches += end < entries_.size() ? group : batches_of(begin, end);
    begin = end;
  }
  Settlement settled;
  settled.steps = (natural + natural / kSpare) * options_.accumulation_steps;
  if (natural == 1 || settled.steps > samples / num_replicas) {
    settled.steps = divide_up(batches, num_replicas);
    if (settled.steps * num_replicas > samples) {  // No multiple lies between the two.
      if (options_.steps.drop_last) {
        return evenstride::settle(std::vector<BucketRange>{{batches, samples}}, options_.steps);
      }
      settled.repeats = settled.steps * num_replicas - samples;
    }
  }
  settled.batches = {settled.steps * num_replicas - settled.repeats};
  return settled;
}

template <class Entry>
Settlement MixedEpoch<Entry>::settle_on(std::uint64_t steps) const {
  if (steps % options_.accumulation_steps != 0) {
    throw std::invalid_argument("`steps_per_epoch` must be a multiple of accumulation_steps = " +
                                std::to_string(options_.accumulation_steps) +
                                " for order='mixed', but is " + std::to_string(steps) + ".");
  }
  const std::uint64_t fewest = batches_of(0, entries_.size());
  const std::vector<BucketRange> all{{fewest, entries_.size()}};
  return evenstride::settle_on(steps, all, std::vector{fewest}, options_.steps);
}

// Returns where each optimizer step begins in drawn order, and the end of the last. The samples
// beyond that end found no place.
//
// A step takes what is due for an even deal, if it can. One with long samples cannot, and passes
// some on; so that this is made up for before the end, steps deal ahead as far as they have room,
// by up to kMostAhead steps' samples, and let that melt away over the last steps.
template <class Entry>
std::vector<std::size_t> MixedEpoch<Entry>::deal(std::uint64_t num_steps) const {
  constexpr std::uint64_t kMostAhead = 8;
  constexpr std::uint64_t kMelting = 16;  // Optimizer steps in which one step's samples melt away.
  const std::uint64_t samples = entries_.size();
  const std::uint64_t num_groups = divide_up(num_steps, options_.accumulation_steps);
  __extension__ using Wide = unsigned __int128;
  std::vector<std::size_t> begins{0};
  for (std::uint64_t step = 0; step < num_steps;) {
    const std::uint64_t next = std::min(num_steps, step + options_.accumulation_steps);
    const std::uint64_t max_batches = (next - step) * options_.steps.num_replicas;
    const std::uint64_t groups_left = num_groups - begins.size();
    const std::uint64_t ahead =
        samples / num_groups * std::min(kMostAhead * kMelting, groups_left) / kMelting;
    const auto due = static_cast<std::uint64_t>(Wide{samples} * next / num_steps);
    // At least one sample a batch, for this step and for all that follow.
    const std::uint64_t begin = begins.back();
    const std::uint64_t latest = samples - (num_steps - next) * options_.steps.num_replicas;
    const auto end =
        static_cast<std::size_t>(std::min(latest, std::max(due + ahead, begin + max_batches)));
    begins.push_back(batches_of(begins.back(), end) <= max_batches
                         ? end
                         : largest_end(begins.back(), end, max_batches));
    step = next;
  }
  return begins;
}

template <class Entry>
void MixedEpoch<Entry>::sort_range(std::size_t begin, std::size_t end) {
  std::vector<Entry> scratch(end - begin);
  sort_by_length(std::span(entries_).subspan(begin, end - begin), std::span(scratch),
                 Direction::kUp, watch_);
}

// Makes `wanted` batches of the sorted samples [begin, end), the most expensive first.
template <class Entry>
void MixedEpoch<Entry>::cut(std::size_t begin, std::size_t end, std::uint64_t wanted,
                            Batch<Entry>* to) {
  const std::span<const Entry> entries = std::span(entries_).subspan(begin, end - begin);
  in_pieces(watch_, begin, end, [&](std::size_t from, std::size_t to_end) {
    for (std::size_t i = from; i < to_end; ++i) {
      indices_[i] = entries_[i].index();
    }
  });
  const auto* const indices = reinterpret_cast<const std::byte*>(&indices_[begin]);
  const std::vector<Cut> cuts = cut_into(entries, wanted, options_.limits, watch_);
  if (cuts.size() != wanted) {
    throw_misfit();
  }
  Batch<Entry>* next = to;
  for (const Cut& cut : cuts) {
    *next++ = {.indices = indices + cut.begin * sizeof(Index),
               .count = static_cast<Index>(cut.end - cut.begin),
               .longest = static_cast<Index>(cut.longest)};
  }
  StepCheck check(watch_);
  std::stable_sort(to, next, [&](const Batch<Entry>& a, const Batch<Entry>& b) {
    check();
    const auto cost = [&](const Batch<Entry>& batch) {
      return batch.count * width_of(batch.longest, options_.limits.pad_to_multiple_of);
    };
    return cost(a) > cost(b);
  });
}

template <class Entry>
Steps<Entry> MixedEpoch<Entry>::form(const Settlement& settlement, Team& team) {
  const auto num_replicas = static_cast<std::size_t>(options_.steps.num_replicas);
  const std::size_t group = num_replicas * static_cast<std::size_t>(options_.accumulation_steps);
  if (settlement.batches.size() != 1 || settlement.batches.front() > entries_.size() ||
      settlement.batches.front() + settlement.repeats < settlement.steps * num_replicas) {
    throw_misfit();
  }
  const auto wanted = static_cast<std::size_t>(settlement.batches.front());
  std::vector<Batch<Entry>> batches(wanted);
  std::vector<std::size_t> begins{0, 0};
  std::size_t whole = 0;  // Optimizer steps that keep what they were dealt.
  if (wanted == settlement.steps * num_replicas) {
    begins = deal(settlement.steps);
    whole = begins.size() - 1;
  }
  // Sorting more of the last optimizer steps together makes fewer batches, until all samples fit.
  const std::size_t all = begins.size() - 1;
  if (begins.back() < entries_.size()) {
    for (std::size_t together = 1;; together = std::min(all, 2 * together)) {
      whole = all - together;
      if (together == all || batches_of(begins[whole], entries_.size()) <= wanted - whole * group) {
        break;
      }
    }
  }
  team.for_each(whole, [&](std::size_t step, int) {
    sort_range(begins[step], begins[step + 1]);
    cut(begins[step], begins[step + 1], std::min(group, wanted - step * group),
        &batches[step * group]);
    team.watch().advance(kCutWork * (begins[step + 1] - begins[step]));
  });
  if (whole < all) {
    sort_range(begins[whole], entries_.size());
    cut(begins[whole], entries_.size(), wanted - whole * group, &batches[whole * group]);
    shuffle(std::span(batches).subspan(whole * group), Draws(stream_.substream(kTail)), watch_);
  }

  Steps<Entry> steps;
  const auto total = static_cast<std::size_t>(settlement.steps) * num_replicas;
  const auto list_samples = [](const Batch<Entry>& batch, std::vector<std::uint64_t>& to) {
    for (std::size_t i = 0; i < batch.count; ++i) {
      to.push_back(batch.index(i));
    }
  };
  for (std::size_t i = total; i < wanted; ++i) {
    list_samples(batches[i], steps.dropped);
  }
  Draws draws(stream_.substream(kLast));
  for (std::size_t i = wanted; i < total; ++i) {
    batches.push_back(batches[static_cast<std::size_t>(draws.below(wanted))]);
    list_samples(batches.back(), steps.repeats);
  }
  batches.resize(total);
  steps.batches.resize(total);
  const auto num_optimizer_steps = divide_up(total, group);
  team.for_each(static_cast<std::size_t>(num_optimizer_steps), [&](std::size_t step, int) {
    const std::size_t begin = step * group;
    std::vector<std::size_t> order((std::min(total, begin + group) - begin) / num_replicas);
    std::iota(order.begin(), order.end(), std::size_t{0});
    shuffle(std::span(order), Draws(stream_.substream(kSteps).substream(step)));
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::copy_n(&batches[begin + order[i] * num_replicas], num_replicas,
                  &steps.batches[begin + i * num_replicas]);
    }
  });
  StepCheck check(watch_);
  for (const Batch<Entry>& batch : steps.batches) {
    check();
    const bool is_alone = batch.longest >= options_.limits.admitted_end;
    steps.buckets.push_back(static_cast<std::uint16_t>(
        is_alone ? classes_.num_buckets() - 1 : classes_.bucket_of(batch.longest)));
  }
  draw_ranks(steps, num_replicas, 0, static_cast<std::size_t>(settlement.steps),
             stream_.substream(kRanks), watch_);
  return steps;
}

template class MixedEpoch<PackedEntry>;
template class MixedEpoch<WideEntry>;

}  // namespace evenstride
