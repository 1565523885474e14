#include "bindings/module.h"

namespace evenstride {

void def_cuda(py::module_& /*m*/) {}

}  // namespace evenstride
