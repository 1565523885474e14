// How Python takes batches from the queues of a pass.
#pragma once

#include <pybind11/typing.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "loader/delivery.h"
#include "loader/workers.h"

namespace evenstride {

// Takes the next batch of a target. Waits without the GIL, and lets signals interrupt it.
Delivery::Taken wait_for_batch(Delivery& delivery, std::uint32_t target);

// The number of a batch, and the batch.
template <class Batch>
using Numbered = py::typing::Optional<py::typing::Tuple<py::int_, Batch>>;

// The batches of one rank in a plan. Refers to the arrays.
inline PlannedBatches to_planned(const py::array& indices, const py::array& offsets,
                                 std::uint64_t first, std::uint64_t stride) {
  return {.indices = as_one_of<std::int32_t, std::uint32_t, std::int64_t>(indices, "indices"),
          .offsets = as_span<std::int64_t>(offsets, "offsets"),
          .first = first,
          .stride = stride};
}

// Workers that make batches of one kind, and the queues that they fill.
template <class Batch>
class PassWorkers {
 public:
  PassWorkers(MakeBatch make, const PlannedBatches& batches, std::shared_ptr<Delivery> delivery,
              int num_threads)
      : delivery_(std::move(delivery)),
        workers_(std::make_unique<Workers>(std::move(make), batches, delivery_, num_threads)) {}

  Numbered<Batch> take(std::uint32_t target) {
    const Delivery::Taken taken = wait_for_batch(*delivery_, target);
    if (taken.outcome != Delivery::Outcome::kBatch) {
      return py::none();
    }
    return py::make_tuple(taken.batch, std::static_pointer_cast<Batch>(taken.parcel));
  }

  void put_back(std::uint32_t target, std::uint64_t batch, std::shared_ptr<Batch> made) {
    delivery_->put_back(target, {Delivery::Outcome::kBatch, batch, std::move(made)});
  }

  // Ends the threads. Whoever comes second waits as well.
  void end() {
    delivery_->close();
    const std::lock_guard lock(mutex_);
    workers_.reset();
  }

 private:
  std::shared_ptr<Delivery> delivery_;
  std::mutex mutex_;
  std::unique_ptr<Workers> workers_;
};

// Defines what all of them can do.
template <class Batch, class Class>
void def_pass_workers(Class& workers) {
  using Self = typename Class::type;
  workers
      .def("take", &Self::take, py::arg("target"),
           "Wait for a batch; return its number and the batch, or None at the end.")
      .def("put_back", &Self::put_back, py::arg("target"), py::arg("batch"), py::arg("made"),
           "Undo a take.");
}

}  // namespace evenstride
