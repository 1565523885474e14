#include "bindings/dlpack.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/placed.h"

namespace evenstride {
namespace {

// The binary interface of DLPack 0.8, which every consumer understands; see the specification at
// dmlc.github.io/dlpack. Members stand in its order.
struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

constexpr const char* kName = "dltensor";  // A consumer renames the capsule that it has taken over.

// A tensor, with everything that it points at.
struct Managed {
  DLManagedTensor tensor{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<const void> owner;
};

DLDataType dlpack_type(DType dtype) {
  constexpr std::uint8_t kInt = 0;
  constexpr std::uint8_t kUInt = 1;
  constexpr std::uint8_t kFloat = 2;
  constexpr std::uint8_t kBFloat = 4;
  constexpr std::uint8_t kBool = 6;
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  if (dtype == DType::kBool) {
    return {kBool, bits, 1};
  }
  if (dtype == DType::kBFloat16) {
    return {kBFloat, bits, 1};
  }
  if (is_float(dtype)) {
    return {kFloat, bits, 1};
  }
  return {is_signed(dtype) ? kInt : kUInt, bits, 1};
}

void destroy_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName) != 0) {
    auto* const tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kName));
    tensor->deleter(tensor);
  }
}

py::object to_capsule(std::unique_ptr<Managed> managed) {
  PyObject* const capsule = PyCapsule_New(&managed->tensor, kName, &destroy_unused);
  if (capsule == nullptr) {
    throw py::error_already_set();
  }
  (void)managed.release();  // NOLINT(bugprone-unused-return-value): the capsule owns it now.
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

Capsules to_dlpack(const std::vector<Output>& outputs, const Layout& layout,
                   const DlpackMemory& memory) {
  Capsules capsules(outputs.size());
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    auto managed = std::make_unique<Managed>();
    managed->shape = shape_of(outputs[o], layout, layout.arrays[o]);
    managed->strides = strides_of(managed->shape);
    managed->owner = memory.owner;
    const std::uintptr_t address = memory.address + layout.arrays[o].offset;
    managed->tensor = {.dl_tensor = {.data = reinterpret_cast<void*>(address),
                                     .device = {memory.device_type, memory.device_id},
                                     .ndim = static_cast<std::int32_t>(managed->shape.size()),
                                     .dtype = dlpack_type(outputs[o].dtype),
                                     .shape = managed->shape.data(),
                                     .strides = managed->strides.data(),
                                     .byte_offset = 0},
                       .manager_ctx = managed.get(),
                       .deleter = [](DLManagedTensor* tensor) {
                         delete static_cast<Managed*>(tensor->manager_ctx);
                       }};
    capsules[o] = to_capsule(std::move(managed));
  }
  return capsules;
}

}  // namespace evenstride
