#include "core/fingerprint.h"

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/watched.h"

namespace evenstride {

void def_fingerprint(py::module_& m) {
  m.def(
      "fingerprint",
      [](const py::array& lengths, int num_threads) {
        const Lengths view = as_lengths(lengths);
        return watched(takes_long(view), std::nullopt, [=](Watch& watch) {
          Team team(num_threads, &watch);
          return fingerprint(view, team);
        });
      },
      py::arg("lengths").noconvert(), py::kw_only(), py::arg("num_threads"),
      "Return a hash of the lengths and their order, whatever their dtype.");
}

}  // namespace evenstride
