// Batches as DLPack capsules, the way in which tensors change hands without a copy.
#pragma once

#include <pybind11/typing.h>

#include <memory>
#include <vector>

#include "bindings/module.h"
#include "collate/collate.h"
#include "loader/slabs.h"

namespace evenstride {

using Capsules = py::typing::Tuple<py::capsule, py::ellipsis>;

// Returns one capsule for each output of a batch that lies in `slab`. The slab returns to its pool
// when the last of the tensors that are made of them has died, on whichever thread.
Capsules to_dlpack(const std::vector<Output>& outputs, const Layout& layout,
                   const std::shared_ptr<const Slab>& slab);

}  // namespace evenstride
