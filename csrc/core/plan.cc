#include "core/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/balanced.h"
#include "core/checks.h"
#include "core/complete.h"
#include "core/edges.h"
#include "core/fewest.h"
#include "core/histogram.h"
#include "core/layout.h"
#include "core/mixed.h"
#include "core/random.h"
#include "core/steps.h"

namespace evenstride {
namespace {

enum StreamName : std::uint64_t { kCompose, kSteps, kOrder, kMixed };

constexpr std::uint64_t kTailSteps = 8;            // Refilled to make a whole number of steps.
constexpr std::size_t kSamplesPerThread = 65'536;  // Fewer do not repay a thread's start.

void check(const StepOptions& steps) {
  check_count("num_replicas", steps.num_replicas);
  constexpr std::uint64_t kMostReplicas = std::uint64_t{1} << 20;  // A step needs memory for each.
  if (steps.num_replicas > kMostReplicas) {
    throw std::invalid_argument("`num_replicas` must be in [1, 2**20], but is " +
                                std::to_string(steps.num_replicas) + ".");
  }
  check_count("steps_per_epoch", steps.steps_per_epoch.value_or(1));
}

PlanOptions checked(const PlanOptions& options) {
  const FillLimits& limits = options.limits;
  check_limits(limits);
  check_count("window", options.window);
  check_count("accumulation_steps", options.accumulation_steps);
  if (limits.token_budget < limits.pad_to_multiple_of) {
    throw std::invalid_argument("`token_budget` must be at least pad_to_multiple_of = " +
                                std::to_string(limits.pad_to_multiple_of) + ", but is " +
                                std::to_string(limits.token_budget) + ".");
  }
  if (options.order == Order::kMixed && options.composition != Composition::kShuffle &&
      options.composition != Composition::kSorted) {
    throw std::invalid_argument(
        "`composition` must be 'shuffle' for order='mixed', but is '" +
        std::string(options.composition == Composition::kWindow ? "window" : "frozen") + "'.");
  }
  if (options.num_threads < 1) {
    throw std::invalid_argument("`num_threads` must be at least 1, but is " +
                                std::to_string(options.num_threads) + ".");
  }
  PlanOptions result = options;
  if (result.composition == Composition::kSorted) {
    result.order = Order::kDescending;
  }
  result.limits.admitted_end = end_of_admitted(limits, options.admission.max_length);
  return result;
}

Survey survey_in(const Lengths& lengths, const Classes& classes, const PlanOptions& options,
                 Watch* watch) {
  Team team(options.num_threads, watch);
  team.watch().expect(kSurveyWork * num_samples(lengths));
  return survey(lengths, classes, options.limits, options.admission, team);
}

// No more threads than there is work for.
PlanOptions for_samples(PlanOptions options, std::size_t samples) {
  options.num_threads = static_cast<int>(std::min<std::size_t>(
      static_cast<std::size_t>(options.num_threads), 1 + samples / kSamplesPerThread));
  return options;
}

// Throws unless each bucket can be filled into the batches that were settled.
template <class Entry>
void check_fits(const Settlement& settlement, std::span<const FilledBucket<Entry>> buckets) {
  bool fits = settlement.batches.size() == buckets.size();
  for (std::size_t k = 0; fits && k < buckets.size(); ++k) {
    const std::uint64_t alone = buckets[k].alone.size();
    fits = settlement.batches[k] >= alone && settlement.batches[k] - alone <= buckets[k].samples &&
           (settlement.batches[k] > alone || buckets[k].samples == 0);
  }
  if (!fits) {
    throw std::invalid_argument("`settlement` must be of the same lengths and options.");
  }
}

// Returns the numbers of the steps in the order in which they come.
template <class Entry>
LargeVector<std::uint32_t> sequence_of(const Steps<Entry>& steps, const PlanOptions& options,
                                       std::size_t num_replicas, Stream stream, Team& team) {
  const std::size_t num_steps = steps.batches.size() / num_replicas;
  LargeVector<std::uint32_t> sequence(num_steps);
  if (options.order == Order::kMixed || options.order == Order::kAscending ||
      options.order == Order::kDescending) {
    std::iota(sequence.begin(), sequence.end(), std::uint32_t{0});
    if (options.order != Order::kMixed) {
      StepCheck check(team.watch());
      std::vector<std::uint64_t> longest(num_steps);
      for (std::size_t i = 0; i < steps.batches.size(); ++i) {
        check();
        auto& step = longest[i / num_replicas];
        step = std::max<std::uint64_t>(step, steps.batches[i].longest);
      }
      const bool is_ascending = options.order == Order::kAscending;
      std::stable_sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
        check();
        return is_ascending ? longest[a] < longest[b] : longest[a] > longest[b];
      });
    }
    return sequence;
  }
  const OrderOptions order{.order = options.order,
                           .jitter = options.jitter,
                           .accumulation_steps = options.accumulation_steps};
  const std::vector<std::uint16_t> labels =
      order_steps(steps.steps_per_bucket, order, stream, team);
  std::vector<std::uint32_t> next(steps.steps_per_bucket.size());
  std::uint32_t first = 0;
  for (std::size_t k = 0; k < next.size(); ++k) {
    next[k] = first;
    first += static_cast<std::uint32_t>(steps.steps_per_bucket[k]);
  }
  in_pieces(team.watch(), 0, num_steps, [&](std::size_t begin, std::size_t end) {
    for (std::size_t place = begin; place < end; ++place) {
      sequence[place] = next[labels[place]]++;
    }
  });
  return sequence;
}

LengthHistogram admitted_lengths(const LengthHistogram& all, const FillLimits& limits,
                                 const Admission& admission) {
  LengthHistogram admitted;
  for (std::size_t i = 0; i < all.lengths.size(); ++i) {
    const bool is_removed = all.lengths[i] == 0 && admission.empty != Empty::kKeep;
    if (all.lengths[i] < limits.admitted_end && !is_removed) {
      admitted.lengths.push_back(all.lengths[i]);
      admitted.counts.push_back(all.counts[i]);
    }
  }
  return admitted;
}

}  // namespace

std::vector<std::uint64_t> inner_edges_for(const Lengths& lengths, const Buckets& buckets,
                                           std::uint64_t merge_buckets, const PlanOptions& options,
                                           Watch* watch) {
  check_count("merge_buckets", merge_buckets);
  if (const auto* given = std::get_if<std::vector<std::uint64_t>>(&buckets)) {
    check_edges(*given);
    return merge_edges(*given, merge_buckets);
  }
  const std::uint64_t num_buckets = std::get<std::uint64_t>(buckets);
  check_count("buckets", num_buckets);
  const PlanOptions valid = for_samples(checked(options), num_samples(lengths));
  Team team(valid.num_threads, watch);
  team.watch().expect((kHistogramWork + kSurveyWork) * num_samples(lengths));
  const LengthHistogram admitted =
      admitted_lengths(length_histogram(lengths, team), valid.limits, valid.admission);
  if (admitted.lengths.empty()) {
    return {};  // What is wrong with that is for the survey to say.
  }
  return merge_edges(optimal_edges(admitted, num_buckets, valid.limits, team), merge_buckets);
}

Planner::Planner(const Lengths& lengths, std::vector<std::uint64_t> inner_edges,
                 const PlanOptions& options, Watch* watch)
    : lengths_(lengths),
      options_(for_samples(checked(options), num_samples(lengths))),
      classes_(std::move(inner_edges), options_.limits, options_.admission, num_samples(lengths)),
      survey_(survey_in(lengths_, classes_, options_, watch)) {
  // Buckets above the longest sample are no buckets; without them the classes are numbered anew.
  std::vector<std::uint64_t> kept = classes_.inner_edges();
  std::erase_if(kept, [&](std::uint64_t edge) { return edge > survey_.longest; });
  if (kept.size() != classes_.inner_edges().size()) {
    classes_ = Classes(std::move(kept), options_.limits, options_.admission, num_samples(lengths));
    survey_ = survey_in(lengths_, classes_, options_, watch);
  }
}

std::vector<std::uint64_t> Planner::edges() const {
  std::vector<std::uint64_t> edges{0};
  edges.insert(edges.end(), classes_.inner_edges().begin(), classes_.inner_edges().end());
  edges.push_back(survey_.longest + 1);
  return edges;
}

bool Planner::is_packed() const {
  const std::uint64_t widest = width_of(survey_.longest, options_.limits.pad_to_multiple_of);
  return !options_.force_wide && widest <= std::numeric_limits<std::int32_t>::max() &&
         num_samples(lengths_) < std::uint64_t{1} << 32;
}

std::uint64_t Planner::work_to_settle() const {
  return (kDealWork + kFillWork) * survey_.admitted.samples;
}

// Of the orders, only those that take long count.
std::uint64_t Planner::work_to_plan(const StepOptions& steps) const {
  const std::uint64_t samples = survey_.admitted.samples;
  std::uint64_t work = work_to_settle() + kLayOutWork * samples;
  if (options_.order == Order::kMixed) {
    work += kCutWork * samples;
  } else if (options_.order == Order::kBalanced || options_.order == Order::kStratified) {
    const std::uint64_t batches =
        std::max(survey_.admitted.tokens / options_.limits.token_budget,
                 survey_.admitted.samples / options_.limits.max_batch_size);
    work += balanced_work(classes_.num_buckets()) * (batches / steps.num_replicas);
  }
  return work;
}

// The planner's workspace, or one of its own while another thread plans. It never waits: in a child
// that was forked meanwhile, that thread would never come to an end.
class Planner::WorkspaceLease {
 public:
  explicit WorkspaceLease(Planner& planner)
      : lock_(planner.mutex_, std::try_to_lock),
        workspace_(lock_.owns_lock() ? &planner.workspace_ : &own_) {}

  [[nodiscard]] Workspace& workspace() const { return *workspace_; }

 private:
  std::unique_lock<std::mutex> lock_;
  Workspace own_;
  Workspace* workspace_;
};

Settlement Planner::settle(const StepOptions& steps, Watch* watch) {
  check(steps);
  const WorkspaceLease lease(*this);
  Team team(options_.num_threads, watch);
  team.watch().expect(work_to_settle());
  return is_packed() ? settle_as<PackedEntry>(steps, lease.workspace(), team)
                     : settle_as<WideEntry>(steps, lease.workspace(), team);
}

EpochPlan Planner::plan(std::uint64_t epoch, const StepOptions& steps,
                        const std::optional<Settlement>& settlement, Watch* watch) {
  check(steps);
  const WorkspaceLease lease(*this);
  Team team(options_.num_threads, watch);
  team.watch().expect(work_to_plan(steps));
  return is_packed() ? plan_as<PackedEntry>(epoch, steps, settlement, lease.workspace(), team)
                     : plan_as<WideEntry>(epoch, steps, settlement, lease.workspace(), team);
}

void Planner::release_memory() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    workspace_.release();
  }
}

template <class Entry>
Settlement Planner::settlement_of(std::span<const FilledBucket<Entry>> buckets,
                                  const StepOptions& steps, Team& team) const {
  std::vector<BucketRange> ranges;
  for (const FilledBucket<Entry>& bucket : buckets) {
    ranges.push_back({.batches = bucket.batches.size() + bucket.alone.size(),
                      .samples = bucket.samples + bucket.alone.size()});
  }
  if (!steps.steps_per_epoch) {
    return evenstride::settle(ranges, steps);
  }
  std::vector<std::uint64_t> fewest =
      fewest_batches(length_histogram(lengths_, team), classes_, options_.limits);
  fewest.back() += buckets.back().alone.size();
  return settle_on(*steps.steps_per_epoch, ranges, fewest, steps);
}

template <class Entry>
Settlement Planner::settle_as(const StepOptions& steps, Workspace& workspace, Team& team) {
  const Stream stream = Stream::of(options_.seed, 0);
  if (options_.order == Order::kMixed) {
    return MixedEpoch<Entry>(lengths_, classes_, survey_,
                             {options_.limits, steps, options_.accumulation_steps},
                             stream.substream(kMixed), workspace, team)
        .settle();
  }
  const std::vector<FilledBucket<Entry>> buckets = compose<Entry>(
      lengths_, classes_, survey_, {options_.composition, options_.window, options_.limits},
      stream.substream(kCompose), workspace, team);
  return settlement_of(std::span(buckets), steps, team);
}

template <class Entry>
EpochPlan Planner::plan_as(std::uint64_t epoch, const StepOptions& steps,
                           const std::optional<Settlement>& settlement, Workspace& workspace,
                           Team& team) {
  // Sorted plans are for validation, and the same in every epoch.
  const Stream stream =
      Stream::of(options_.seed, options_.composition == Composition::kSorted ? 0 : epoch);
  const auto num_replicas = static_cast<std::size_t>(steps.num_replicas);
  const auto lay_out_steps = [&](Steps<Entry> formed) {
    LargeVector<std::uint32_t> sequence =
        sequence_of(formed, options_, num_replicas, stream.substream(kOrder), team);
    return lay_out(std::move(formed), std::move(sequence), num_replicas,
                   options_.limits.pad_to_multiple_of, team);
  };
  if (options_.order == Order::kMixed) {
    MixedEpoch<Entry> mixed(lengths_, classes_, survey_,
                            {options_.limits, steps, options_.accumulation_steps},
                            stream.substream(kMixed), workspace, team);
    return lay_out_steps(mixed.form(settlement ? *settlement : mixed.settle(), team));
  }
  std::vector<FilledBucket<Entry>> buckets = compose<Entry>(
      lengths_, classes_, survey_, {options_.composition, options_.window, options_.limits},
      stream.substream(kCompose), workspace, team);
  const Settlement settled =
      settlement ? *settlement
                 : settlement_of(std::span<const FilledBucket<Entry>>(buckets), steps, team);
  check_fits(settled, std::span<const FilledBucket<Entry>>(buckets));
  team.for_each(buckets.size(), [&](std::size_t k, int) {
    complete(buckets[k], settled.batches[k] - buckets[k].alone.size(), kTailSteps * num_replicas,
             lengths_, options_.limits, team.watch());
  });
  return lay_out_steps(form_steps(std::span(buckets), settled, steps,
                                  options_.limits.pad_to_multiple_of, stream.substream(kSteps),
                                  team));
}

}  // namespace evenstride
