#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/collate.h"
#include "bindings/delivery.h"
#include "bindings/dlpack.h"
#include "bindings/module.h"
#include "bindings/placed.h"
#include "bindings/shared.h"
#include "bindings/unlocked.h"
#include "cuda/destination.h"
#include "cuda/kernel_image.h"
#include "cuda/stager.h"
#include "loader/pooled_collator.h"

namespace evenstride {
namespace {

CuStream to_stream(std::uintptr_t handle) {
  return reinterpret_cast<CuStream>(handle);
}

std::shared_ptr<Destination> make_destination(int ordinal, std::shared_ptr<GivenBlocks> given) {
  const Unlocked unlocked;
  return std::make_shared<Destination>(lane_of(ordinal), std::move(given));
}

std::shared_ptr<Destination> make_ring(int ordinal, std::size_t num_blocks,
                                       std::size_t block_bytes) {
  const Unlocked unlocked;
  return std::make_shared<Destination>(lane_of(ordinal), num_blocks, block_bytes);
}

void submit_into(Destination& destination, DeviceBatch& batch, py::object owner,
                 std::uintptr_t address, std::size_t capacity) {
  GivenBlock block{.address = address, .capacity = capacity, .owner = shared(std::move(owner))};
  const Unlocked unlocked;
  destination.submit_into(batch, std::move(block));
}

std::uintptr_t stream_of(int ordinal) {
  const Unlocked unlocked;
  return reinterpret_cast<std::uintptr_t>(lane_of(ordinal).stream());
}

void release(Destination& destination, DeviceBatch& batch,
             const std::vector<std::uintptr_t>& handles) {
  std::vector<CuStream> streams;
  for (const std::uintptr_t handle : handles) {
    streams.push_back(to_stream(handle));
  }
  const Unlocked unlocked;
  destination.release(batch, streams);
}

py::object owner(const DeviceBatch& batch) {
  return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(batch.block.owner.get()));
}

Capsules capsules(const DeviceBatch& batch, const PooledCollator& collator,
                  std::int32_t device_type, std::int32_t device_id) {
  return to_dlpack(collator.collator->outputs(), batch.staged.layout,
                   {.address = batch.block.address,
                    .owner = batch.block.owner,
                    .device_type = device_type,
                    .device_id = device_id});
}

std::optional<std::string> driver_error() {
  const Unlocked unlocked;
  try {
    (void)system_driver();
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::shared_ptr<Stager> make_stager(const PooledCollator& collator, const Destination& destination,
                                    std::size_t num_slabs, std::uint64_t most_samples,
                                    std::uint64_t most_tokens) {
  const Unlocked unlocked;
  return std::make_shared<Stager>(collator.collator, destination.lane(), num_slabs, most_samples,
                                  most_tokens);
}

std::shared_ptr<DeviceBatch> stage(Stager& stager, std::uint64_t number,
                                   const PooledCollator& collator, const py::object& given) {
  thread_local BatchRows rows;
  const std::vector<std::int64_t> samples = read_samples(collator, given);
  const Unlocked unlocked;
  return stager.stage(number, samples, rows);
}

Counts use_of(const Stager& stager) {
  const PinnedPool::Use use = stager.use();
  Counts result;
  result["slabs"] = use.slabs;
  result["lent"] = use.lent;
  result["bytes"] = use.bytes;
  result["allocations"] = use.allocations;
  result["waits"] = use.waits;
  return result;
}

std::unique_ptr<PassWorkers<DeviceBatch>> start_device_workers(
    const std::shared_ptr<Stager>& stager, const py::array& indices, const py::array& offsets,
    const std::shared_ptr<Delivery>& delivery,
    const std::vector<std::shared_ptr<Destination>>& destinations, std::uint64_t first,
    std::uint64_t stride, int num_threads) {
  MakeBatch make = [&] {
    const Unlocked unlocked;  // Memory of devices is reserved.
    return stage_for(stager, destinations, delivery);
  }();
  return std::make_unique<PassWorkers<DeviceBatch>>(
      std::move(make), to_planned(indices, offsets, first, stride), delivery, num_threads);
}

}  // namespace

void def_cuda(py::module_& m) {
  m.attr("cuda_compiler") =
      kernel_image().empty() ? py::object(py::none()) : py::str(std::string(kernel_compiler()));

  m.def("device_stream", &stream_of, py::arg("ordinal"),
        "Return the handle of the stream of a device that batches are submitted on.");
  m.def("driver_error", &driver_error,
        "Return why there is no driver that has a device; None if there is.");
  m.def("kernel_error", &kernel_error, py::call_guard<Unlocked>(), py::arg("ordinal"),
        "Return why the kernel cannot run on a device; None if it can.");

  py::class_<DeviceBatch, std::shared_ptr<DeviceBatch>>(m, "DeviceBatch",
                                                        "A batch on its way to a device.")
      .def_property_readonly(
          "num_bytes", [](const DeviceBatch& self) { return self.staged.layout.bytes; },
          "Of all outputs.")
      .def_property_readonly(
          "padded_tokens", [](const DeviceBatch& self) { return self.staged.padded_tokens(); },
          "Samples times the width of the widest output.")
      .def_readonly("is_given", &DeviceBatch::is_given,
                    "Whether its memory was given before it needed it.")
      .def_property_readonly("owner", &owner, "Who owns the memory that was given for its outputs.")
      .def(
          "places",
          [](const DeviceBatch& self, const PooledCollator& collator) {
            return to_places(collator.collator->outputs(), self.staged.layout);
          },
          py::arg("collator"), "Return place, shape and strides of each output, in values.")
      .def("capsules", &capsules, py::arg("collator"), py::arg("device_type"), py::arg("device_id"),
           "Return one DLPack capsule for each output.")
      .def(
          "count",
          [](DeviceBatch& self, PooledCollator& collator) {
            collator.count(self.staged.layout);
            const Unlocked unlocked;
            self.slab.reset();
          },
          py::arg("collator"),
          "Count what was cut in it, once a consumer has it for good: it cannot be submitted "
          "again.");

  py::class_<Destination, std::shared_ptr<Destination>>(
      m, "Destination", "The memory of one device for batches, and the way there.",
      py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&make_destination), py::arg("ordinal"), py::arg("given"))
      .def(py::init(&make_ring), py::arg("ordinal"), py::kw_only(), py::arg("num_blocks"),
           py::arg("block_bytes"))
      .def_property_readonly(
          "num_multiprocessors",
          [](const Destination& self) { return self.lane().num_multiprocessors(); },
          "Of the device.")
      .def(
          "has",
          [](const Destination& self, const DeviceBatch& batch) {
            return batch.destination == &self;
          },
          py::arg("batch"), "Return whether a batch was submitted here.")
      .def(
          "submit", &Destination::submit, py::call_guard<Unlocked>(), py::arg("batch"),
          py::kw_only(), py::arg("most_blocks") = 0,
          "Submit a batch; return False if there is no memory for it. It takes a small part of the "
          "device, or up to most_blocks blocks.")
      .def("submit_into", &submit_into, py::arg("batch"), py::arg("owner"), py::arg("address"),
           py::arg("capacity"), "Submit a batch into memory that is for it alone.")
      .def(
          "hand_over",
          [](Destination& self, DeviceBatch& batch, std::uintptr_t stream) {
            self.hand_over(batch, to_stream(stream));
          },
          py::call_guard<Unlocked>(), py::arg("batch"), py::arg("stream"),
          "Let a stream wait for a batch that was submitted.")
      .def("release", &release, py::arg("batch"), py::arg("streams"),
           "End the lease of a batch's memory after what these streams have been given.");

  py::class_<Stager, std::shared_ptr<Stager>>(m, "Stager", "Stages batches in pinned memory.",
                                              py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&make_stager), py::keep_alive<1, 2>(), py::arg("collator"),
           py::arg("destination"), py::kw_only(), py::arg("num_slabs"), py::arg("most_samples"),
           py::arg("most_tokens"))
      .def("stage", &stage, py::arg("number"), py::arg("collator"), py::arg("samples"),
           "Stage a batch of samples.")
      .def_property_readonly("slabs", &use_of,
                             "Slabs, how many are lent, the bytes of all, allocations and waits.");

  py::class_<PassWorkers<DeviceBatch>> workers(m, "DeviceWorkers",
                                               "Threads that stage the batches of a plan.",
                                               py::release_gil_before_calling_cpp_dtor());
  def_pass_workers<DeviceBatch>(workers);
  workers.def("close", &PassWorkers<DeviceBatch>::end, py::call_guard<Unlocked>(),
              "End the threads. Not in a process that was forked since.");
  workers.def(py::init(&start_device_workers), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
              py::keep_alive<1, 4>(), py::arg("stager"), py::arg("indices").noconvert(),
              py::arg("offsets").noconvert(), py::arg("delivery"), py::arg("destinations"),
              py::kw_only(), py::arg("first"), py::arg("stride"), py::arg("num_threads"));
}

}  // namespace evenstride
