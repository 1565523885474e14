// Batches as DLPack capsules, the way in which tensors change hands without a copy.
#pragma once

#include <pybind11/typing.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/module.h"
#include "collate/collate.h"

namespace evenstride {

using Capsules = py::typing::Tuple<py::capsule, py::ellipsis>;

// The memory of a batch.
struct DlpackMemory {
  std::uintptr_t address;
  std::shared_ptr<const void> owner;  // Keeps it.
  std::int32_t device_type = 1;       // As DLPack numbers them: the host.
  std::int32_t device_id = 0;
};

// Returns one capsule for each output of a batch. The owner ends when the last of the tensors that
// are made of them has died, on whichever thread.
Capsules to_dlpack(const std::vector<Output>& outputs, const Layout& layout,
                   const DlpackMemory& memory);

}  // namespace evenstride
