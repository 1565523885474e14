// A whole epoch: every batch of every rank, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "core/buckets.h"
#include "core/cells.h"
#include "core/compose.h"
#include "core/epoch_plan.h"
#include "core/fill.h"
#include "core/lengths.h"
#include "core/memory.h"
#include "core/order.h"
#include "core/settle.h"
#include "core/threads.h"

namespace evenstride {

struct PlanOptions {
  FillLimits limits;
  Admission admission;
  Composition composition = Composition::kShuffle;
  std::uint64_t window = 1024;
  Order order = Order::kStride;
  std::uint32_t jitter = 0;  // See `fixed_jitter`.
  std::uint64_t accumulation_steps = 1;
  std::uint64_t seed = 0;
  int num_threads = 1;
  bool force_wide = false;  // Entries of 16 bytes where 8 would do. The plan is the same.
};

// A number of buckets, or their inner edges.
using Buckets = std::variant<std::uint64_t, std::vector<std::uint64_t>>;

// Returns inner edges: those given, or those that optimal_edges finds for the samples that
// `options` admit, with every `merge_buckets` adjacent buckets made one. Throws
// std::invalid_argument for bad edges, options and lengths. A watch expects a planner to be made
// next.
[[nodiscard]] std::vector<std::uint64_t> inner_edges_for(const Lengths& lengths,
                                                         const Buckets& buckets,
                                                         std::uint64_t merge_buckets,
                                                         const PlanOptions& options,
                                                         Watch* watch = nullptr);

// Plans epochs of one set of lengths. Keeps memory of about 8 bytes a sample from plan to plan (16
// where entries are wide); for kMixed a plan takes 12 (24) more while it is made.
//
// What takes a watch comes to a check within a few tenths of a second, whatever the number of
// samples. A planner whose call was stopped is as it was before.
//
// Thread-safe: calls at the same time do not wait, but all but one make memory of their own. Also
// safe in a child that was forked at any moment.
class Planner {
 public:
  // Surveys the lengths, which must outlive the planner and not change. Throws
  // std::invalid_argument for bad edges, options and lengths; all messages name the rule and the
  // value.
  Planner(const Lengths& lengths, std::vector<std::uint64_t> inner_edges,
          const PlanOptions& options, Watch* watch = nullptr);

  // Returns the edges of all buckets: one more than there are buckets, from 0 to longest + 1. Inner
  // edges above the longest sample are left out.
  [[nodiscard]] std::vector<std::uint64_t> edges() const;

  [[nodiscard]] const Lengths& lengths() const noexcept { return lengths_; }
  [[nodiscard]] const Classes& classes() const noexcept { return classes_; }
  [[nodiscard]] const Survey& survey() const noexcept { return survey_; }

  // Returns how many batches each bucket is to make in every epoch, as epoch 0 has it. Throws
  // std::invalid_argument if there would be no step, or not as many as `steps` asks for.
  [[nodiscard]] Settlement settle(const StepOptions& steps, Watch* watch = nullptr);

  // Returns the plan that (lengths, options, epoch, steps, settlement) alone fix: the same for
  // every number of threads and on every platform. Without a settlement the epoch is settled by
  // itself, and throws as `settle` does; else it must come from `settle` with the same `steps`, and
  // std::invalid_argument is thrown if it cannot.
  [[nodiscard]] EpochPlan plan(std::uint64_t epoch, const StepOptions& steps,
                               const std::optional<Settlement>& settlement = std::nullopt,
                               Watch* watch = nullptr);

  // Gives back the memory that is kept from plan to plan; the next plan makes it anew. Does nothing
  // while another thread plans.
  void release_memory();

 private:
  class WorkspaceLease;

  template <class Entry>
  [[nodiscard]] Settlement settle_as(const StepOptions& steps, Workspace& workspace, Team& team);
  template <class Entry>
  [[nodiscard]] EpochPlan plan_as(std::uint64_t epoch, const StepOptions& steps,
                                  const std::optional<Settlement>& settlement, Workspace& workspace,
                                  Team& team);
  template <class Entry>
  [[nodiscard]] Settlement settlement_of(std::span<const FilledBucket<Entry>> buckets,
                                         const StepOptions& steps, Team& team) const;
  [[nodiscard]] bool is_packed() const;
  [[nodiscard]] std::uint64_t work_to_settle() const;
  [[nodiscard]] std::uint64_t work_to_plan(const StepOptions& steps) const;

  Lengths lengths_;
  PlanOptions options_;
  Classes classes_;
  Survey survey_;
  Workspace workspace_;
  std::mutex mutex_;
};

}  // namespace evenstride
