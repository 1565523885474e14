#include "core/stats.h"

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/watched.h"

namespace evenstride {
namespace {

void def_statistics(py::module_& m) {
  py::class_<BucketStatistics>(m, "BucketStatistics", "What one bucket has in an epoch.")
      .def_readonly("samples", &BucketStatistics::samples)
      .def_readonly("batches", &BucketStatistics::batches)
      .def_readonly("tokens", &BucketStatistics::tokens)
      .def_readonly("padded_tokens", &BucketStatistics::padded_tokens)
      .def_readonly("longest_width", &BucketStatistics::longest_width)
      .def_readonly("limited_by_token_budget", &BucketStatistics::limited_by_token_budget)
      .def_readonly("limited_by_max_batch_size", &BucketStatistics::limited_by_max_batch_size)
      .def_readonly("limited_by_batch_size_multiple",
                    &BucketStatistics::limited_by_batch_size_multiple)
      .def_readonly("limited_by_samples", &BucketStatistics::limited_by_samples)
      .def_readonly("steps", &BucketStatistics::steps)
      .def_readonly("steps_end", &BucketStatistics::steps_end)
      .def_readonly("quarter_steps", &BucketStatistics::quarter_steps);

  py::class_<PlanStatistics>(m, "PlanStatistics", "What can be asked of a planned epoch.")
      .def_readonly("steps", &PlanStatistics::steps)
      .def_readonly("mixed_steps", &PlanStatistics::mixed_steps)
      .def_readonly("batches", &PlanStatistics::batches)
      .def_readonly("samples", &PlanStatistics::samples)
      .def_readonly("tokens", &PlanStatistics::tokens)
      .def_readonly("padded_tokens", &PlanStatistics::padded_tokens)
      .def_readonly("distinct_shapes", &PlanStatistics::distinct_shapes)
      .def_readonly("buckets", &PlanStatistics::buckets)
      .def_readonly("earliest_exhaustion", &PlanStatistics::earliest_exhaustion)
      .def_readonly("runs", &PlanStatistics::runs)
      .def_readonly("prefix_discrepancy", &PlanStatistics::prefix_discrepancy)
      .def_readonly("windows", &PlanStatistics::windows)
      .def_readonly("crowded_windows", &PlanStatistics::crowded_windows)
      .def_readonly("length_correlation", &PlanStatistics::length_correlation)
      .def_readonly("width_correlation", &PlanStatistics::width_correlation)
      .def_readonly("mean_rank_imbalance", &PlanStatistics::mean_rank_imbalance)
      .def_readonly("worst_rank_imbalance", &PlanStatistics::worst_rank_imbalance);
}

}  // namespace

void def_stats(py::module_& m) {
  def_statistics(m);
  m.def(
      "batch_tokens",
      [](const py::array& lengths, const py::array& indices, const py::array& offsets,
         int num_threads) {
        const Lengths lengths_view = as_lengths(lengths);
        const IndexView indices_view =
            as_one_of<std::uint32_t, std::uint64_t, std::int64_t>(indices, "indices");
        const auto offsets_view = as_span<std::int64_t>(offsets, "offsets");
        std::vector<std::uint64_t> tokens =
            watched(takes_long(lengths_view), std::nullopt, [=](Watch& watch) {
              Team team(num_threads, &watch);
              return batch_tokens(lengths_view, indices_view, offsets_view, team);
            });
        return to_numpy<std::uint64_t>(std::move(tokens));
      },
      py::arg("lengths").noconvert(), py::arg("indices").noconvert(),
      py::arg("offsets").noconvert(), py::kw_only(), py::arg("num_threads"),
      "Return the real tokens of each batch.");
  m.def(
      "plan_statistics",
      [](const py::array& offsets, const py::array& buckets, const py::array& widths,
         const py::array& tokens, std::uint64_t num_replicas, std::size_t num_buckets,
         std::uint64_t token_budget, std::uint64_t max_batch_size,
         std::uint64_t batch_size_multiple, int num_threads) {
        const PlanView plan{.offsets = as_span<std::int64_t>(offsets, "offsets"),
                            .buckets = as_span<std::int16_t>(buckets, "buckets"),
                            .widths = as_one_of<std::int32_t, std::int64_t>(widths, "widths"),
                            .tokens = as_span<std::uint64_t>(tokens, "tokens"),
                            .num_replicas = num_replicas,
                            .num_buckets = num_buckets,
                            .limits = {.token_budget = token_budget,
                                       .max_batch_size = max_batch_size,
                                       .batch_size_multiple = batch_size_multiple}};
        return watched(plan.buckets.size() >= kFewSamples, std::nullopt, [=](Watch& watch) {
          Team team(num_threads, &watch);
          return plan_statistics(plan, team);
        });
      },
      py::arg("offsets").noconvert(), py::arg("buckets").noconvert(), py::arg("widths").noconvert(),
      py::arg("tokens").noconvert(), py::kw_only(), py::arg("num_replicas"), py::arg("num_buckets"),
      py::arg("token_budget"), py::arg("max_batch_size"), py::arg("batch_size_multiple"),
      py::arg("num_threads"), "Return the statistics of the batches of an epoch.");
}

}  // namespace evenstride
