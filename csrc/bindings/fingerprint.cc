#include "core/fingerprint.h"

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/unlocked.h"

namespace evenstride {

void def_fingerprint(py::module_& m) {
  m.def(
      "fingerprint",
      [](const py::array& lengths, int num_threads) {
        const Lengths view = as_lengths(lengths);
        const Unlocked unlocked;
        Team team(num_threads);
        return fingerprint(view, team);
      },
      py::arg("lengths").noconvert(), py::kw_only(), py::arg("num_threads"),
      "Return a hash of the lengths and their order, whatever their dtype.");
}

}  // namespace evenstride
