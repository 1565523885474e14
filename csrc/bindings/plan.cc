#include "core/plan.h"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/unlocked.h"
#include "bindings/watched.h"
#include "core/threads.h"
#include "loader/helper.h"
#include "loader/priority.h"

namespace evenstride {
namespace {

py::array indices_of(EpochPlan& plan) {
  if (auto* narrow = std::get_if<Buffer<std::uint32_t>>(&plan.indices)) {
    return to_numpy<std::uint32_t>(std::move(*narrow));
  }
  return to_numpy<std::int64_t>(std::move(std::get<Buffer<std::uint64_t>>(plan.indices)));
}

py::array widths_of(EpochPlan& plan) {
  if (auto* narrow = std::get_if<Buffer<std::int32_t>>(&plan.widths)) {
    return to_numpy<std::int32_t>(std::move(*narrow));
  }
  return to_numpy<std::int64_t>(std::move(std::get<Buffer<std::int64_t>>(plan.widths)));
}

using PlanArrays = py::typing::Dict<py::str, py::array>;

PlanArrays arrays_of(EpochPlan plan) {
  PlanArrays result;
  result["indices"] = indices_of(plan);
  result["offsets"] = to_numpy<std::int64_t>(std::move(plan.offsets));
  result["buckets"] = to_numpy<std::int16_t>(std::move(plan.buckets));
  result["widths"] = widths_of(plan);
  result["repeats"] = to_numpy<std::int64_t>(std::move(plan.repeats));
  result["dropped"] = to_numpy<std::int64_t>(std::move(plan.dropped));
  return result;
}

// A plan that is made in a thread of lowest priority. Several threads may use it, each with the
// GIL.
class PlanAhead {
 public:
  PlanAhead(Planner& planner, std::uint64_t epoch, const StepOptions& steps,
            const std::optional<Settlement>& settlement)
      : helper_(
            std::make_shared<Helper<EpochPlan>>([&planner, epoch, steps, settlement](Watch& watch) {
              take_lowest_priority();
              return planner.plan(epoch, steps, settlement, &watch);
            })) {}

  // Returns whether there is nothing to wait for, now or within so many seconds.
  [[nodiscard]] bool wait(double seconds) const {
    const auto helper = helper_;
    if (!helper || !helper->is_here()) {
      return true;
    }
    const Unlocked unlocked;
    return helper->wait_for(std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds)));
  }

  // Returns how much of it is done, in [0, 1].
  [[nodiscard]] double fraction() const noexcept { return helper_ ? helper_->fraction() : 1.0; }

  // Returns the plan, once; throws what making it threw.
  [[nodiscard]] std::optional<PlanArrays> take() {
    const auto helper = helper_;
    if (!helper || !helper->is_here()) {
      return std::nullopt;
    }
    if (!helper->wait_for(std::chrono::milliseconds(0))) {
      throw py::value_error("`wait` must have returned True first.");
    }
    helper_ = nullptr;
    return arrays_of(helper->take());
  }

  // Lets the work end, and does not wait for it.
  void ask_to_stop() {
    if (helper_) {
      helper_->stop();
    }
  }

  // Ends the work and its thread.
  void stop() {
    auto helper = std::exchange(helper_, nullptr);
    if (helper) {
      const Unlocked unlocked;
      helper->stop();
      helper = nullptr;
    }
  }

 private:
  std::shared_ptr<Helper<EpochPlan>> helper_;
};

std::unique_ptr<PlanAhead> plan_ahead(Planner& planner, std::uint64_t epoch,
                                      std::uint64_t num_replicas, bool drop_last,
                                      std::optional<std::uint64_t> steps_per_epoch,
                                      const std::optional<Settlement>& settlement) {
  try {
    return std::make_unique<PlanAhead>(
        planner, epoch, StepOptions{num_replicas, drop_last, steps_per_epoch}, settlement);
  } catch (const std::system_error&) {  // No more threads to be had.
    return nullptr;
  }
}

using Amounts = py::typing::Dict<py::str, py::int_>;

Amounts to_dict(const Amount& amount) {
  Amounts result;
  result["samples"] = amount.samples;
  result["tokens"] = amount.tokens;
  return result;
}

// Whether it takes longer to find these edges than to start a thread for it.
bool finds_many_edges(const Buckets& buckets) {
  const auto* const num_buckets = std::get_if<std::uint64_t>(&buckets);
  return num_buckets != nullptr && *num_buckets > kManyBuckets;
}

std::unique_ptr<Planner> make_planner(
    const py::array& lengths, const Buckets& buckets, std::uint64_t merge_buckets,
    std::uint64_t token_budget, std::uint64_t max_batch_size, std::uint64_t batch_size_multiple,
    std::uint64_t pad_to_multiple_of, std::uint64_t max_length, const std::string& composition,
    std::uint64_t window, const std::string& order, double jitter, std::uint64_t accumulation_steps,
    bool shuffle, std::uint64_t seed, const std::string& too_long, const std::string& empty,
    int num_threads, const Progress& progress) {
  const Lengths view = as_lengths(lengths);
  const Composition named = parse_composition(composition);
  const PlanOptions options{.limits = {.token_budget = token_budget,
                                       .max_batch_size = max_batch_size,
                                       .batch_size_multiple = batch_size_multiple,
                                       .pad_to_multiple_of = pad_to_multiple_of},
                            .admission = {.max_length = max_length,
                                          .too_long = parse_too_long(too_long),
                                          .empty = parse_empty(empty)},
                            .composition = shuffle ? named : Composition::kSorted,
                            .window = window,
                            .order = parse_order(order),
                            .jitter = fixed_jitter(jitter),
                            .accumulation_steps = accumulation_steps,
                            .seed = seed,
                            .num_threads = num_threads};
  return watched(takes_long(view) || finds_many_edges(buckets), progress, [=](Watch& watch) {
    return std::make_unique<Planner>(
        view, inner_edges_for(view, buckets, merge_buckets, options, &watch), options, &watch);
  });
}

}  // namespace

void def_plan(py::module_& m) {
  py::class_<Settlement>(m, "Settlement", "How many batches each bucket makes in every epoch.")
      .def(py::init([](std::vector<std::uint64_t> batches, std::uint64_t steps,
                       std::uint64_t repeats) {
             return Settlement{.batches = std::move(batches), .steps = steps, .repeats = repeats};
           }),
           py::kw_only(), py::arg("batches"), py::arg("steps"), py::arg("repeats"))
      .def_readonly("batches", &Settlement::batches)
      .def_readonly("steps", &Settlement::steps)
      .def_readonly("repeats", &Settlement::repeats);

  py::class_<PlanAhead>(m, "PlanAhead", "A plan that is made in the background.")
      .def("wait", &PlanAhead::wait, py::arg("seconds"),
           "Return whether there is nothing to wait for, now or within so many seconds.")
      .def_property_readonly("fraction", &PlanAhead::fraction, "How much is done, in [0, 1].")
      .def("take", &PlanAhead::take,
           "Return the arrays, or raise what making them raised; None if taken or stopped.")
      .def("ask_to_stop", &PlanAhead::ask_to_stop, "Let the work end, and do not wait for it.")
      .def("stop", &PlanAhead::stop, "End the work and its thread.");

  py::class_<Planner>(m, "Planner", "Plans epochs of one array of lengths, which it refers to.")
      .def(py::init(&make_planner), py::keep_alive<1, 2>(), py::arg("lengths").noconvert(),
           py::arg("buckets"), py::kw_only(), py::arg("merge_buckets"), py::arg("token_budget"),
           py::arg("max_batch_size"), py::arg("batch_size_multiple"), py::arg("pad_to_multiple_of"),
           py::arg("max_length"), py::arg("composition"), py::arg("window"), py::arg("order"),
           py::arg("jitter"), py::arg("accumulation_steps"), py::arg("shuffle"), py::arg("seed"),
           py::arg("too_long"), py::arg("empty"), py::arg("num_threads"),
           py::arg("progress") = py::none())
      .def_property_readonly("edges", &Planner::edges)
      .def_property_readonly(
          "removed",
          [](const Planner& planner) {
            py::typing::Dict<py::str, Amounts> removed;
            const std::vector<Amount>& classes = planner.survey().classes;
            removed["too_long"] = to_dict(classes[planner.classes().too_long()]);
            removed["empty"] = to_dict(classes[planner.classes().empty()]);
            return removed;
          },
          "Samples and tokens that are no part of any epoch, by reason.")
      .def_property_readonly(
          "admitted", [](const Planner& planner) { return to_dict(planner.survey().admitted); },
          "Samples and tokens of an epoch.")
      .def(
          "settle",
          [](Planner& planner, std::uint64_t num_replicas, bool drop_last,
             std::optional<std::uint64_t> steps_per_epoch, const Progress& progress) {
            const StepOptions steps{num_replicas, drop_last, steps_per_epoch};
            return watched(
                takes_long(planner.lengths()), progress,
                [&planner, steps](Watch& watch) { return planner.settle(steps, &watch); });
          },
          py::kw_only(), py::arg("num_replicas"), py::arg("drop_last"), py::arg("steps_per_epoch"),
          py::arg("progress") = py::none(),
          "Return what every epoch is to be filled into, as epoch 0 has it.")
      .def(
          "plan",
          [](Planner& planner, std::uint64_t epoch, std::uint64_t num_replicas, bool drop_last,
             std::optional<std::uint64_t> steps_per_epoch,
             const std::optional<Settlement>& settlement, const Progress& progress) {
            const StepOptions steps{num_replicas, drop_last, steps_per_epoch};
            EpochPlan plan = watched(takes_long(planner.lengths()), progress,
                                     [&planner, epoch, steps, settlement](Watch& watch) {
                                       return planner.plan(epoch, steps, settlement, &watch);
                                     });
            return arrays_of(std::move(plan));
          },
          py::arg("epoch"), py::kw_only(), py::arg("num_replicas"), py::arg("drop_last"),
          py::arg("steps_per_epoch") = py::none(), py::arg("settlement") = py::none(),
          py::arg("progress") = py::none(), "Return the arrays of the plan of one epoch.")
      .def("plan_ahead", &plan_ahead, py::keep_alive<0, 1>(), py::arg("epoch"), py::kw_only(),
           py::arg("num_replicas"), py::arg("drop_last"), py::arg("steps_per_epoch"),
           py::arg("settlement"), "Begin to make a plan; None if there is no thread to be had.")
      .def("release_memory", &Planner::release_memory, py::call_guard<Unlocked>(),
           "Give back the memory that is kept from plan to plan.");
}

}  // namespace evenstride
