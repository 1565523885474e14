// The parts of the Python module, one for each header of the core that Python uses.
#pragma once

#include <pybind11/pybind11.h>

namespace evenstride {

namespace py = pybind11;

void def_collate(py::module_& m);
void def_column(py::module_& m);
void def_cuda(py::module_& m);
void def_delivery(py::module_& m);
void def_edges(py::module_& m);
void def_fingerprint(py::module_& m);
void def_given(py::module_& m);
void def_lists(py::module_& m);
void def_loader(py::module_& m);
void def_plan(py::module_& m);
void def_stats(py::module_& m);

}  // namespace evenstride
