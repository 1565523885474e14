#include <pybind11/stl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/collate.h"
#include "bindings/dlpack.h"
#include "bindings/module.h"
#include "bindings/placed.h"
#include "bindings/shared.h"
#include "bindings/unlocked.h"
#include "loader/delivery.h"
#include "loader/given.h"
#include "loader/pooled_collator.h"
#include "loader/workers.h"

namespace evenstride {
namespace {

using std::chrono_literals::operator""ms;

constexpr auto kBetweenSignals = 50ms;

// An exception of Python that is on its way from a producer to a consumer.
class PythonFailure : public std::exception {
 public:
  explicit PythonFailure(py::object raised)
      : traceback_(shared(py::reinterpret_steal<py::object>(or_none(raised)))),
        exception_(shared(std::move(raised))) {}

  // Raises it, with the traceback that it had when it left the producer.
  [[noreturn]] void raise() const {
    PyException_SetTraceback(exception_.get(), traceback_.get());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception_.get())), exception_.get());
    throw py::error_already_set();
  }

 private:
  static PyObject* or_none(const py::object& raised) {
    PyObject* const traceback = PyException_GetTraceback(raised.ptr());
    return traceback != nullptr ? traceback : py::none().release().ptr();
  }

  std::shared_ptr<PyObject> traceback_;
  std::shared_ptr<PyObject> exception_;
};

// Takes the next batch of a target. Waits without the GIL, and lets signals interrupt it.
Delivery::Taken wait_for_batch(Delivery& delivery, std::uint32_t target) {
  Delivery::Taken taken{.outcome = Delivery::Outcome::kTimeout};
  for (auto patience = 0ms; taken.outcome == Delivery::Outcome::kTimeout;
       patience = kBetweenSignals) {
    if (patience > 0ms) {
      const Unlocked unlocked;
      taken = delivery.take(target, patience);
    } else {
      taken = delivery.take(target, patience);
    }
    if (PyErr_CheckSignals() != 0) {
      if (taken.outcome == Delivery::Outcome::kBatch) {
        delivery.put_back(target, std::move(taken));
      }
      throw py::error_already_set();
    }
  }
  return taken;
}

// The number of a batch, and the batch.
template <class Batch>
using Numbered = py::typing::Optional<py::typing::Tuple<py::int_, Batch>>;

Numbered<py::object> next_object(Delivery& delivery, std::uint32_t target) {
  try {
    const Delivery::Taken taken = wait_for_batch(delivery, target);
    if (taken.outcome != Delivery::Outcome::kBatch) {
      return py::none();
    }
    auto* const object = static_cast<PyObject*>(taken.parcel.get());
    return py::make_tuple(taken.batch, py::reinterpret_borrow<py::object>(object));
  } catch (const PythonFailure& failure) {
    failure.raise();
  }
}

// Once it is closed, the interpreter may be ending, and a thread that let go of the GIL would have
// no way back. So these keep it while they lock the delivery, under whose lock no thread waits for
// the GIL or lets go of it: what a delivery drops dies after its lock is free.
std::optional<std::uint64_t> claim(Delivery& delivery) {
  if (delivery.is_closed()) {
    return std::nullopt;
  }
  const Unlocked unlocked;
  return delivery.claim();
}

void put(Delivery& delivery, std::uint64_t batch, py::object object) {
  delivery.put(batch, shared(std::move(object)));
}

void put_back(Delivery& delivery, std::uint32_t target, std::uint64_t batch, py::object object) {
  delivery.put_back(target, {Delivery::Outcome::kBatch, batch, shared(std::move(object))});
}

void fail(Delivery& delivery, std::uint64_t batch, py::object exception) {
  delivery.fail(batch, std::make_exception_ptr(PythonFailure(std::move(exception))));
}

std::tuple<std::uint64_t, std::vector<std::uint64_t>, std::uint64_t> progress(
    const Delivery& delivery) {
  Delivery::Progress progress = delivery.progress();
  return {progress.first, std::move(progress.later), progress.num_taken};
}

std::pair<double, double> waits(const Delivery& delivery) {
  const Delivery::Waits waits = delivery.waits();
  return {waits.producers_s, waits.consumers_s};
}

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
class NativeWorkers {
 public:
  NativeWorkers(PooledCollator& collator, const PlannedBatches& batches,
                std::shared_ptr<Delivery> delivery, std::shared_ptr<SlabPool> pool,
                std::shared_ptr<GivenBlocks> given, int num_threads)
      : collator_(collator),
        delivery_(std::move(delivery)),
        pool_(std::move(pool)),
        workers_(std::make_unique<Workers>(collate_into(collator.collator, pool_, std::move(given)),
                                           batches, delivery_, num_threads)) {}

  Numbered<MadeBatch> take(std::uint32_t target) {
    const Delivery::Taken taken = wait_for_batch(*delivery_, target);
    if (taken.outcome != Delivery::Outcome::kBatch) {
      return py::none();
    }
    return py::make_tuple(taken.batch, std::static_pointer_cast<MadeBatch>(taken.parcel));
  }

  // The batch stays whole, so that this can be done again if what follows fails.
  [[nodiscard]] Capsules capsules(const MadeBatch& made) const {
    return to_dlpack(collator_.collator->outputs(), made.layout, made.slab);
  }

  [[nodiscard]] Places places(const MadeBatch& made) const {
    return to_places(collator_.collator->outputs(), made.layout);
  }

  void count(const MadeBatch& made) { collator_.count(made.layout); }

  void put_back(std::uint32_t target, std::uint64_t batch, std::shared_ptr<MadeBatch> made) {
    delivery_->put_back(target, {Delivery::Outcome::kBatch, batch, std::move(made)});
  }

  // Whoever comes second waits as well.
  void close() {
    delivery_->close();
    const std::lock_guard lock(mutex_);
    workers_.reset();
    pool_->close();
  }

  [[nodiscard]] SlabPool::Use use() const { return pool_->use(); }

 private:
  PooledCollator& collator_;
  std::shared_ptr<Delivery> delivery_;
  std::shared_ptr<SlabPool> pool_;
  std::mutex mutex_;
  std::unique_ptr<Workers> workers_;
};

std::unique_ptr<NativeWorkers> start_workers(PooledCollator& collator, const py::array& indices,
                                             const py::array& offsets,
                                             const std::shared_ptr<Delivery>& delivery,
                                             std::uint64_t first, std::uint64_t stride,
                                             int num_threads, std::size_t least_capacity,
                                             std::size_t num_idle, std::size_t most_idle,
                                             const std::shared_ptr<GivenBlocks>& given) {
  const PlannedBatches batches{
      .indices = as_one_of<std::int32_t, std::uint32_t, std::int64_t>(indices, "indices"),
      .offsets = as_span<std::int64_t>(offsets, "offsets"),
      .first = first,
      .stride = stride};
  auto pool = SlabPool::make(most_idle, least_capacity);
  pool->reserve(num_idle);
  return std::make_unique<NativeWorkers>(collator, batches, delivery, std::move(pool), given,
                                         num_threads);
}

}  // namespace

void def_loader(py::module_& m) {
  py::class_<Delivery, std::shared_ptr<Delivery>>(m, "Delivery", "The queues of one pass.")
      .def(py::init([](std::uint64_t num_batches, std::vector<std::uint64_t> taken,
                       std::uint32_t num_targets, std::uint32_t depth, std::uint32_t num_producers,
                       bool in_order) {
             return std::make_shared<Delivery>(DeliveryOptions{.num_batches = num_batches,
                                                               .taken = std::move(taken),
                                                               .num_targets = num_targets,
                                                               .depth = depth,
                                                               .num_producers = num_producers,
                                                               .in_order = in_order});
           }),
           py::kw_only(), py::arg("num_batches"), py::arg("taken"), py::arg("num_targets"),
           py::arg("depth"), py::arg("num_producers"), py::arg("in_order"))
      .def("claim", &claim, "Wait for room; return the next batch to make, or None.")
      .def("put", &put, py::arg("batch"), py::arg("object"), "Deliver a batch that was claimed.")
      .def("fail", &fail, py::arg("batch"), py::arg("exception"),
           "Deliver an exception instead of a batch.")
      .def("take", &next_object, py::arg("target"),
           "Wait for a batch; return its number and the object, or None at the end.")
      .def("put_back", &put_back, py::arg("target"), py::arg("batch"), py::arg("object"),
           "Undo a take.")
      .def("has_failed", &Delivery::has_failed, "Return whether a failure was thrown.")
      .def("leave", &Delivery::leave, py::arg("target"), "Let the others go on without a target.")
      .def("close", &Delivery::close, "Wake everybody, and hand out nothing more.")
      .def("queue_depths", &Delivery::queue_depths, "Return the ready batches of each target.")
      .def("progress", &progress,
           "Return the first batch that is not taken, those beyond it that are, and how many are.")
      .def("waits", &waits, "Return the seconds that producers and consumers have waited.");

  py::class_<MadeBatch, std::shared_ptr<MadeBatch>>(m, "MadeBatch", "A batch in memory.")
      .def_property_readonly("owner", &owner_of,
                             "Who owns the block that was given and holds it, or None.")
      .def_property_readonly(
          "num_bytes", [](const MadeBatch& self) { return self.layout.bytes; }, "Its size.")
      .def("copy_to", &copy_to, py::arg("address"), py::call_guard<Unlocked>(), "Copy its bytes.");

  py::class_<NativeWorkers>(m, "Workers", "Threads that make the batches of a plan.",
                            py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&start_workers), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
           py::keep_alive<1, 4>(), py::arg("collator"), py::arg("indices").noconvert(),
           py::arg("offsets").noconvert(), py::arg("delivery"), py::kw_only(), py::arg("first"),
           py::arg("stride"), py::arg("num_threads"), py::arg("least_capacity"),
           py::arg("num_idle"), py::arg("most_idle"), py::arg("given"))
      .def("take", &NativeWorkers::take, py::arg("target"),
           "Wait for a batch; return its number and the batch, or None at the end.")
      .def("capsules", &NativeWorkers::capsules, py::arg("made"),
           "Return one DLPack capsule for each output of a batch.")
      .def("places", &NativeWorkers::places, py::arg("made"),
           "Return place, shape and strides of each output of a batch in its memory, in values.")
      .def("count", &NativeWorkers::count, py::arg("made"), "Count what was cut in a batch.")
      .def("put_back", &NativeWorkers::put_back, py::arg("target"), py::arg("batch"),
           py::arg("made"), "Undo a take.")
      .def("close", &NativeWorkers::close, py::call_guard<Unlocked>(),
           "End the threads, and keep no memory. Not in a process that was forked since.")
      .def_property_readonly(
          "lent", [](const NativeWorkers& self) { return self.use().lent; },
          "How many batches' memory is in use.")
      .def_property_readonly(
          "slabs", [](const NativeWorkers& self) { return to_dict(self.use()); },
          "Slabs of memory, how many are lent, the bytes of all, and allocations so far.");
}

}  // namespace evenstride
