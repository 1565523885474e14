#include "bindings/delivery.h"

#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/module.h"
#include "bindings/shared.h"
#include "bindings/unlocked.h"
#include "loader/delivery.h"

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

}  // namespace

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

void def_delivery(py::module_& m) {
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
}

}  // namespace evenstride
