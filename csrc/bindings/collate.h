// What the bindings of collators and loaders share.
#pragma once

#include <pybind11/typing.h>

#include "bindings/module.h"
#include "loader/slabs.h"

namespace evenstride {

using Counts = py::typing::Dict<py::str, py::int_>;

// Returns how much memory a pool uses, by name.
Counts to_dict(const SlabPool::Use& use);

}  // namespace evenstride
