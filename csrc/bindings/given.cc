#include "loader/given.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "bindings/module.h"
#include "bindings/shared.h"

namespace evenstride {

// A thread that waits for the lock of these keeps the GIL, as whoever holds it does little, and
// waits for nothing.
void def_given(py::module_& m) {
  py::class_<GivenBlocks, std::shared_ptr<GivenBlocks>>(m, "GivenBlocks",
                                                        "Memory that is given for batches.")
      .def(py::init())
      .def(
          "put",
          [](GivenBlocks& self, py::object owner, std::uintptr_t address, std::size_t capacity) {
            self.put({.address = address, .capacity = capacity, .owner = shared(std::move(owner))});
          },
          py::arg("owner"), py::arg("address"), py::arg("capacity"),
          "Give a block at a multiple of 64 bytes, which lives as long as its owner.")
      .def("__len__", &GivenBlocks::size, "Return how many blocks wait for a batch.")
      .def("close", &GivenBlocks::close,
           "Let go of all blocks. Not in a process that was forked since.");
}

}  // namespace evenstride
