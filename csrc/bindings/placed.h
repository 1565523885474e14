// Where the outputs of a batch lie, for those who make tensors of memory that they have themselves.
#pragma once

#include <pybind11/typing.h>

#include <cstdint>
#include <vector>

#include "bindings/module.h"
#include "collate/collate.h"

namespace evenstride {

// Returns the shape of an output of a batch, in values.
std::vector<std::int64_t> shape_of(const Output& output, const Layout& layout,
                                   const Layout::Array& array);

// Returns the strides of an array of this shape without gaps, in values.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape);

using Sizes = py::typing::List<py::int_>;
// The place of the first value, the shape and the strides, all in values.
using Places = py::typing::List<py::typing::Tuple<py::int_, Sizes, Sizes>>;

// Returns the places of the outputs of a batch in its memory.
Places to_places(const std::vector<Output>& outputs, const Layout& layout);

}  // namespace evenstride
