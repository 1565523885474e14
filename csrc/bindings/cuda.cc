#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/collate.h"
#include "bindings/delivery.h"
#include "bindings/dlpack.h"
#include "bindings/module.h"
#include "bindings/objects.h"
#include "bindings/unlocked.h"
#include "cuda/device_batches.h"
#include "cuda/kernel_image.h"
#include "loader/pooled_collator.h"

namespace evenstride {
namespace {

CuStream to_stream(std::uintptr_t handle) {
  return reinterpret_cast<CuStream>(handle);
}

std::shared_ptr<Destination> make_destination(int ordinal, std::size_t num_blocks,
                                              std::size_t block_bytes) {
  const Unlocked unlocked;
  Lane& lane = lane_of(ordinal);
  return num_blocks == 0 ? std::make_shared<Destination>(lane)
                         : std::make_shared<Destination>(lane, num_blocks, block_bytes);
}

void give(Destination& destination, std::uintptr_t address, std::size_t capacity,
          py::object owner) {
  destination.give({.address = address, .capacity = capacity, .owner = shared(std::move(owner))});
}

void release(Destination& destination, const DeviceBatch& batch,
             const std::vector<std::uintptr_t>& handles) {
  std::vector<CuStream> streams;
  for (const std::uintptr_t handle : handles) {
    streams.push_back(to_stream(handle));
  }
  const Unlocked unlocked;
  destination.release(batch.block, streams);
}

py::object owner(const DeviceBatch& batch) {
  return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(batch.block.owner.get()));
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

// Workers that stage batches, and submit them as early as they can.
class DeviceWorkers {
 public:
  DeviceWorkers(const std::shared_ptr<Stager>& stager, const PlannedBatches& batches,
                std::shared_ptr<Delivery> delivery,
                const std::vector<std::shared_ptr<Destination>>& destinations, int num_threads)
      : delivery_(std::move(delivery)),
        workers_(std::make_unique<Workers>(stage_for(stager, destinations, delivery_), batches,
                                           delivery_, num_threads)) {}

  Numbered<DeviceBatch> take(std::uint32_t target) {
    return take_numbered<DeviceBatch>(*delivery_, target);
  }

  void put_back(std::uint32_t target, std::uint64_t batch, std::shared_ptr<DeviceBatch> made) {
    delivery_->put_back(target, {Delivery::Outcome::kBatch, batch, std::move(made)});
  }

  // Whoever comes second waits as well.
  void close() {
    delivery_->close();
    const std::lock_guard lock(mutex_);
    workers_.reset();
  }

 private:
  std::shared_ptr<Delivery> delivery_;
  std::mutex mutex_;
  std::unique_ptr<Workers> workers_;
};

std::unique_ptr<DeviceWorkers> start_device_workers(
    const std::shared_ptr<Stager>& stager, const py::array& indices, const py::array& offsets,
    const std::shared_ptr<Delivery>& delivery,
    const std::vector<std::shared_ptr<Destination>>& destinations, std::uint64_t first,
    std::uint64_t stride, int num_threads) {
  const PlannedBatches batches{
      .indices = as_one_of<std::int32_t, std::uint32_t, std::int64_t>(indices, "indices"),
      .offsets = as_span<std::int64_t>(offsets, "offsets"),
      .first = first,
      .stride = stride};
  return std::make_unique<DeviceWorkers>(stager, batches, delivery, destinations, num_threads);
}

}  // namespace

void def_cuda(py::module_& m) {
  m.attr("cuda_compiler") =
      kernel_image().empty() ? py::object(py::none()) : py::str(std::string(kernel_compiler()));

  py::class_<DeviceBatch, std::shared_ptr<DeviceBatch>>(m, "DeviceBatch",
                                                        "A batch on its way to a device.")
      .def_property_readonly(
          "bytes", [](const DeviceBatch& self) { return self.staged.layout.bytes; },
          "Of all outputs.")
      .def(
          "is_submitted_to",
          [](const DeviceBatch& self, const Destination& destination) {
            return self.lane == &destination.lane();
          },
          py::arg("destination"), "Return whether it was submitted to this device.")
      .def_property_readonly("owner", &owner, "What was given with the memory of its outputs.")
      .def(
          "arrays",
          [](const DeviceBatch& self, const PooledCollator& collator) {
            return arrays_of(*collator.collator, self.staged.layout);
          },
          py::arg("collator"), "Return place and shape of each output, in values.")
      .def(
          "capsules",
          [](const DeviceBatch& self, const PooledCollator& collator, int device_type,
             int device_id) {
            return to_dlpack(collator.collator->outputs(), self.staged.layout,
                             {.memory = reinterpret_cast<std::byte*>(self.block.address),
                              .owner = self.block.owner,
                              .device = {device_type, device_id}});
          },
          py::arg("collator"), py::arg("device_type"), py::arg("device_id"),
          "Return one DLPack capsule for each output.");

  py::class_<Destination, std::shared_ptr<Destination>>(
      m, "Destination", "The memory of one device for batches, and the way there.")
      .def(py::init(&make_destination), py::arg("ordinal"), py::kw_only(),
           py::arg("num_blocks") = 0, py::arg("block_bytes") = 0)
      .def_property_readonly(
          "stream",
          [](const Destination& self) {
            return reinterpret_cast<std::uintptr_t>(self.lane().stream());
          },
          "The handle of the stream that batches are submitted on.")
      .def("give", &give, py::arg("address"), py::arg("capacity"), py::arg("owner"),
           "Give memory for a batch that is yet to come.")
      .def_property_readonly(
          "num_multiprocessors",
          [](const Destination& self) { return self.lane().num_multiprocessors(); },
          "Of the device.")
      .def("submit", &Destination::submit, py::call_guard<Unlocked>(), py::arg("batch"),
           py::kw_only(), py::arg("most_blocks") = 0,
           "Submit a batch; return False if there is no memory for it. It takes a small part of the "
           "device, or up to most_blocks blocks.")
      .def_property_readonly("num_given", &Destination::num_given,
                             "How much memory is at hand, in blocks.")
      .def(
          "hand_over",
          [](Destination& self, DeviceBatch& batch, std::uintptr_t stream) {
            self.hand_over(batch, to_stream(stream));
          },
          py::call_guard<Unlocked>(), py::arg("batch"), py::arg("stream"),
          "Let a stream wait for a batch that was submitted.")
      .def("release", &release, py::arg("batch"), py::arg("streams"),
           "End the lease of a batch's memory after what these streams have been given.")
      .def("close", &Destination::close, "Drop what was given.");

  py::class_<Stager, std::shared_ptr<Stager>>(m, "Stager", "Stages batches in pinned memory.",
                                              py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&make_stager), py::keep_alive<1, 2>(), py::arg("collator"),
           py::arg("destination"), py::kw_only(), py::arg("num_slabs"), py::arg("most_samples"),
           py::arg("most_tokens"))
      .def("stage", &stage, py::arg("number"), py::arg("collator"), py::arg("samples"),
           "Stage a batch of samples.")
      .def_property_readonly("slabs", &use_of,
                             "Slabs, how many are lent, the bytes of all, allocations and waits.");

  py::class_<DeviceWorkers>(m, "DeviceWorkers", "Threads that stage the batches of a plan.",
                            py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&start_device_workers), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
           py::keep_alive<1, 4>(), py::arg("stager"), py::arg("indices").noconvert(),
           py::arg("offsets").noconvert(), py::arg("delivery"), py::arg("destinations"),
           py::kw_only(), py::arg("first"), py::arg("stride"), py::arg("num_threads"))
      .def("take", &DeviceWorkers::take, py::arg("target"),
           "Wait for a batch; return its number and the batch, or None at the end.")
      .def("put_back", &DeviceWorkers::put_back, py::arg("target"), py::arg("batch"),
           py::arg("made"), "Undo a take.")
      .def("close", &DeviceWorkers::close, py::call_guard<Unlocked>(),
           "End the threads. Not in a process that was forked since.");
}

}  // namespace evenstride
