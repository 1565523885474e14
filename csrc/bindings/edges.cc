#include "core/edges.h"

#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/watched.h"
#include "core/histogram.h"

namespace evenstride {

void def_edges(py::module_& m) {
  m.def(
      "optimal_edges",
      [](const py::array& lengths, std::uint64_t num_buckets, std::uint64_t token_budget,
         std::uint64_t max_batch_size, std::uint64_t pad_to_multiple_of, int num_threads) {
        const Lengths view = as_lengths(lengths);
        const FillLimits limits{.token_budget = token_budget,
                                .max_batch_size = max_batch_size,
                                .pad_to_multiple_of = pad_to_multiple_of};
        return watched(
            takes_long(view) || num_buckets > kManyBuckets, std::nullopt, [=](Watch& watch) {
              Team team(num_threads, &watch);
              return optimal_edges(length_histogram(view, team), num_buckets, limits, team);
            });
      },
      py::arg("lengths").noconvert(), py::arg("num_buckets"), py::kw_only(),
      py::arg("token_budget"), py::arg("max_batch_size"), py::arg("pad_to_multiple_of"),
      py::arg("num_threads"), "Return the inner edges of the buckets that pad least.");
}

}  // namespace evenstride
