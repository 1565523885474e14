#include "core/complete.h"

#include <algorithm>
#include <queue>
#include <span>
#include <variant>
#include <vector>

#include "core/sort.h"

namespace evenstride {
namespace {

constexpr std::uint64_t kWhole = 4096;  // Limits are scaled by parts of this.

FillLimits scaled(const FillLimits& limits, std::uint64_t part) {
  const auto scale = [part](std::uint64_t value) {
    // Whole parts first, because value * part can overflow.
    return std::max<std::uint64_t>(1, value / kWhole * part + value % kWhole * part / kWhole);
  };
  FillLimits smaller = limits;
  smaller.token_budget = scale(limits.token_budget);
  if (limits.max_batch_size != kUnlimited) {
    smaller.max_batch_size = scale(limits.max_batch_size);
  }
  return smaller;
}

FillLimits without_multiple(FillLimits limits) {
  limits.batch_size_multiple = 1;
  return limits;
}

template <class Entry>
std::vector<Cut> cuts_of(std::span<const Entry> entries, const FillLimits& limits,
                         const Watch& watch) {
  std::vector<Cut> cuts;
  StepCheck check(watch);
  fill_all(entries, LengthBounds(limits, entries.size()), [&](const Cut& cut) {
    check(cut.end - cut.begin);
    cuts.push_back(cut);
  });
  return cuts;
}

// Halves the batches with most samples, a multiple first, until there are `wanted`.
template <class Entry>
void halve(std::span<const Entry> entries, std::uint64_t wanted, std::uint64_t multiple,
           std::vector<Cut>& cuts, const Watch& watch) {
  StepCheck check(watch);
  const auto fewer_samples = [&check](const Cut& a, const Cut& b) {
    check();
    return a.end - a.begin < b.end - b.begin;
  };
  std::priority_queue queue(fewer_samples, std::move(cuts));
  while (queue.size() < wanted) {
    const Cut most = queue.top();
    queue.pop();
    const std::size_t samples = most.end - most.begin;
    std::size_t half = (samples + 1) / 2;
    if (samples > multiple) {
      half = std::min(samples - 1, (half + multiple - 1) / multiple * multiple);
    }
    queue.push(cut_at(entries, most.begin, most.begin + half));
    queue.push(cut_at(entries, most.begin + half, most.end));
  }
  cuts.clear();
  for (; !queue.empty(); queue.pop()) {
    cuts.push_back(queue.top());
  }
}

template <class Entry>
std::vector<Entry> samples_of(std::span<const Batch<Entry>> batches, const Lengths& lengths,
                              const Watch& watch) {
  std::vector<Entry> entries;
  std::visit(
      [&](const auto& values) {
        for (const Batch<Entry>& batch : batches) {
          watch.check();
          for (std::size_t i = 0; i < batch.count; ++i) {
            const auto index = batch.index(i);
            entries.emplace_back(static_cast<std::uint64_t>(values[index]), index);
          }
        }
      },
      lengths);
  return entries;
}

template <class Entry>
class Completion {
 public:
  Completion(FilledBucket<Entry>& bucket, const Lengths& lengths, const FillLimits& limits,
             const Watch& watch)
      : bucket_(bucket), lengths_(lengths), limits_(limits), watch_(watch) {}

  void add(std::uint64_t missing, std::uint64_t tail) {
    const std::uint64_t all = bucket_.batches.size();
    std::uint64_t refilled = std::min(all, std::max(tail, 8 * missing));
    std::vector<Entry> entries = last(refilled);
    if (entries.size() < refilled + missing) {
      refilled = all;
      entries = last(refilled);
    }
    replace(refilled, entries,
            cut_into(std::span<const Entry>(entries), refilled + missing, limits_, watch_));
  }

  void remove(std::uint64_t excess, std::uint64_t tail) {
    const std::uint64_t all = bucket_.batches.size();
    const auto is_enough = [&](std::uint64_t refilled) {
      const std::vector<Entry> entries = last_sorted(refilled);
      return count_batches(std::span<const Entry>(entries), limits_, watch_) + excess <= refilled;
    };
    std::uint64_t enough = std::min(all, std::max(tail, 8 * excess));
    std::uint64_t too_few = 0;
    while (enough < all && !is_enough(enough)) {
      too_few = enough;
      enough = std::min(all, 2 * enough);
    }
    // To 1/16, since sorting a little more than is needed only costs a little variety.
    while (too_few > 0 && enough - too_few > 1 + too_few / 16) {
      const std::uint64_t middle = too_few + (enough - too_few) / 2;
      (is_enough(middle) ? enough : too_few) = middle;
    }
    const std::vector<Entry> entries = last_sorted(enough);
    replace(enough, entries,
            cut_into(std::span<const Entry>(entries), enough - excess, limits_, watch_));
  }

 private:
  [[nodiscard]] std::vector<Entry> last(std::uint64_t batches) const {
    return samples_of(
        std::span<const Batch<Entry>>(bucket_.batches).last(static_cast<std::size_t>(batches)),
        lengths_, watch_);
  }

  [[nodiscard]] std::vector<Entry> last_sorted(std::uint64_t batches) const {
    std::vector<Entry> entries = last(batches);
    std::vector<Entry> scratch(entries.size());
    sort_by_length(std::span(entries), std::span(scratch), Direction::kUp, watch_);
    return entries;
  }

  void replace(std::uint64_t batches, std::span<const Entry> entries, std::span<const Cut> cuts) {
    bucket_.batches.resize(bucket_.batches.size() - static_cast<std::size_t>(batches));
    bucket_.append(entries, cuts);
  }

  FilledBucket<Entry>& bucket_;
  const Lengths& lengths_;
  const FillLimits& limits_;
  const Watch& watch_;
};

}  // namespace

template <class Entry>
std::uint64_t count_batches(std::span<const Entry> entries, const FillLimits& limits,
                            const Watch& watch) {
  std::uint64_t batches = 0;
  StepCheck check(watch);
  fill_all(entries, LengthBounds(limits, entries.size()), [&](const Cut& cut) {
    check(cut.end - cut.begin);
    ++batches;
  });
  return batches;
}

template <class Entry>
std::vector<Cut> cut_into(std::span<const Entry> entries, std::uint64_t wanted,
                          const FillLimits& limits, const Watch& watch) {
  // A multiple can make more batches than the same samples need without one.
  const FillLimits whole =
      count_batches(entries, limits, watch) <= wanted ? limits : without_multiple(limits);
  std::uint64_t too_small = 0;
  std::uint64_t enough = kWhole;
  while (enough - too_small > 1) {
    const std::uint64_t middle = too_small + (enough - too_small) / 2;
    (count_batches(entries, scaled(whole, middle), watch) <= wanted ? enough : too_small) = middle;
  }
  std::vector<Cut> cuts = cuts_of(entries, scaled(whole, enough), watch);
  halve(entries, wanted, whole.batch_size_multiple, cuts, watch);
  return cuts;
}

template <class Entry>
void complete(FilledBucket<Entry>& bucket, std::uint64_t wanted, std::uint64_t tail,
              const Lengths& lengths, const FillLimits& limits, const Watch& watch) {
  const std::uint64_t filled = bucket.batches.size();
  Completion<Entry> completion(bucket, lengths, limits, watch);
  if (filled < wanted) {
    completion.add(wanted - filled, tail);
  } else if (filled > wanted) {
    completion.remove(filled - wanted, tail);
  }
}

template std::uint64_t count_batches(std::span<const PackedEntry>, const FillLimits&, const Watch&);
template std::uint64_t count_batches(std::span<const WideEntry>, const FillLimits&, const Watch&);
template std::vector<Cut> cut_into(std::span<const PackedEntry>, std::uint64_t, const FillLimits&,
                                   const Watch&);
template std::vector<Cut> cut_into(std::span<const WideEntry>, std::uint64_t, const FillLimits&,
                                   const Watch&);
template void complete(FilledBucket<PackedEntry>&, std::uint64_t, std::uint64_t, const Lengths&,
                       const FillLimits&, const Watch&);
template void complete(FilledBucket<WideEntry>&, std::uint64_t, std::uint64_t, const Lengths&,
                       const FillLimits&, const Watch&);

}  // namespace evenstride
