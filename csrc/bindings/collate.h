// What the bindings of collators and loaders share.
#pragma once

#include <pybind11/typing.h>

#include <cstdint>
#include <vector>

#include "bindings/module.h"
#include "loader/pooled_collator.h"
#include "loader/slabs.h"

namespace evenstride {

using Counts = py::typing::Dict<py::str, py::int_>;

// Returns how much memory a pool uses, by name.
Counts to_dict(const SlabPool::Use& use);

// Copies the samples of a batch from a list, an array, or any other sequence of ints.
std::vector<std::int64_t> read_samples(const PooledCollator& self, const py::object& given);

}  // namespace evenstride
