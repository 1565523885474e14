#include "loader/pooled_collator.h"

#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/collate.h"
#include "bindings/delivery.h"
#include "bindings/dlpack.h"
#include "bindings/module.h"
#include "bindings/placed.h"
#include "bindings/shared.h"
#include "bindings/unlocked.h"
#include "loader/given.h"
#include "loader/workers.h"

namespace evenstride {
namespace {

// Returns the owner of the block that a batch lies in, or None.
py::object owner_of(const MadeBatch& made) {
  if (!made.block) {
    return py::none();
  }
  return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(made.block->owner.get()));
}

void copy_to(const MadeBatch& made, std::uintptr_t address) {
  std::memcpy(reinterpret_cast<void*>(address), made.memory(), made.layout.bytes);
}

// Workers, and the memory of their batches.
class NativeWorkers : public PassWorkers<MadeBatch> {
 public:
  NativeWorkers(PooledCollator& collator, const PlannedBatches& batches,
                std::shared_ptr<Delivery> delivery, std::shared_ptr<SlabPool> pool,
                std::shared_ptr<GivenBlocks> given, int num_threads)
      : PassWorkers(collate_into(collator.collator, pool, std::move(given)), batches,
                    std::move(delivery), num_threads),
        collator_(collator),
        pool_(std::move(pool)) {}

  // The batch stays whole, so that this can be done again if what follows fails.
  [[nodiscard]] Capsules capsules(const MadeBatch& made) const {
    return to_dlpack(
        collator_.collator->outputs(), made.layout,
        {.address = reinterpret_cast<std::uintptr_t>(made.slab->memory), .owner = made.slab});
  }

  [[nodiscard]] Places places(const MadeBatch& made) const {
    return to_places(collator_.collator->outputs(), made.layout);
  }

  void count(const MadeBatch& made) { collator_.count(made.layout); }

  void close() {
    end();
    pool_->close();
  }

  [[nodiscard]] SlabPool::Use use() const { return pool_->use(); }

 private:
  PooledCollator& collator_;
  std::shared_ptr<SlabPool> pool_;
};

std::unique_ptr<NativeWorkers> start_workers(PooledCollator& collator, const py::array& indices,
                                             const py::array& offsets,
                                             const std::shared_ptr<Delivery>& delivery,
                                             std::uint64_t first, std::uint64_t stride,
                                             int num_threads, std::size_t least_capacity,
                                             std::size_t num_idle, std::size_t most_idle,
                                             const std::shared_ptr<GivenBlocks>& given) {
  auto pool = SlabPool::make(most_idle, least_capacity);
  pool->reserve(num_idle);
  return std::make_unique<NativeWorkers>(collator, to_planned(indices, offsets, first, stride),
                                         delivery, std::move(pool), given, num_threads);
}

}  // namespace

void def_loader(py::module_& m) {
  py::class_<MadeBatch, std::shared_ptr<MadeBatch>>(m, "MadeBatch", "A batch in memory.")
      .def_property_readonly("owner", &owner_of,
                             "Who owns the block that was given and holds it, or None.")
      .def_property_readonly(
          "num_bytes", [](const MadeBatch& self) { return self.layout.bytes; }, "Its size.")
      .def("copy_to", &copy_to, py::arg("address"), py::call_guard<Unlocked>(), "Copy its bytes.");

  py::class_<NativeWorkers> workers(m, "Workers", "Threads that make the batches of a plan.",
                                    py::release_gil_before_calling_cpp_dtor());
  def_pass_workers<MadeBatch>(workers);
  workers
      .def(py::init(&start_workers), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
           py::keep_alive<1, 4>(), py::arg("collator"), py::arg("indices").noconvert(),
           py::arg("offsets").noconvert(), py::arg("delivery"), py::kw_only(), py::arg("first"),
           py::arg("stride"), py::arg("num_threads"), py::arg("least_capacity"),
           py::arg("num_idle"), py::arg("most_idle"), py::arg("given"))
      .def("capsules", &NativeWorkers::capsules, py::arg("made"),
           "Return one DLPack capsule for each output of a batch.")
      .def("places", &NativeWorkers::places, py::arg("made"),
           "Return place, shape and strides of each output of a batch in its memory, in values.")
      .def("close", &NativeWorkers::close, py::call_guard<Unlocked>(),
           "End the threads, and keep no memory. Not in a process that was forked since.")
      .def("count", &NativeWorkers::count, py::arg("made"), "Count what was cut in a batch.")
      .def_property_readonly(
          "lent", [](const NativeWorkers& self) { return self.use().lent; },
          "How many batches' memory is in use.")
      .def_property_readonly(
          "slabs", [](const NativeWorkers& self) { return to_dict(self.use()); },
          "Slabs of memory, how many are lent, the bytes of all, and allocations so far.");
}

}  // namespace evenstride
