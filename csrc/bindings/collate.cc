#include "collate/collate.h"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/collate.h"
#include "bindings/dlpack.h"
#include "bindings/module.h"
#include "bindings/placed.h"
#include "bindings/unlocked.h"
#include "core/names.h"
#include "loader/pooled_collator.h"

namespace evenstride {
namespace {

// Key, source, column, type, bits of the padding value, whether padding comes first, start, most
// tokens, and the column of the prompts.
using OutputTuple =
    std::tuple<std::string, std::string, std::shared_ptr<Column>, std::string, std::uint64_t, bool,
               std::uint64_t, std::uint64_t, std::optional<std::shared_ptr<Column>>>;

constexpr Named<Output::Source> kSources[] = {{"values", Output::Source::kValues},
                                              {"mask", Output::Source::kMask},
                                              {"positions", Output::Source::kPositions},
                                              {"lengths", Output::Source::kLengths}};

Output to_output(const OutputTuple& given) {
  const auto& [key, source, column, dtype, padding, pads_left, start, max_length, prompt] = given;
  return {.key = key,
          .source = parse_name("source", kSources, source),
          .column = column,
          .dtype = parse_dtype("dtype", dtype),
          .padding = padding,
          .pads_left = pads_left,
          .start = start,
          .max_length = max_length,
          .prompt = prompt.value_or(nullptr)};
}

std::unique_ptr<PooledCollator> make_collator(const std::vector<OutputTuple>& given,
                                              const std::optional<py::array>& rows,
                                              std::uint64_t pad_to_multiple_of) {
  std::vector<Output> outputs;
  for (const OutputTuple& output : given) {
    outputs.push_back(to_output(output));
  }
  std::optional<std::span<const std::int64_t>> view;
  if (rows) {
    view = as_span<std::int64_t>(*rows, "rows");
  }
  return std::make_unique<PooledCollator>(
      std::make_shared<const Collator>(std::move(outputs), view, pad_to_multiple_of));
}

// Throws the interpreter's error for item i of a batch; one that names it, if it is no int64.
[[noreturn]] void throw_bad_sample(const PooledCollator& self, std::size_t i, py::handle item) {
  if (PyErr_ExceptionMatches(PyExc_OverflowError) != 0) {
    PyErr_Clear();
    self.collator->throw_outside(i, py::str(item));
  }
  if (PyIndex_Check(item.ptr()) == 0) {
    PyErr_Clear();
    throw py::type_error("`indices[" + std::to_string(i) + "]` must be an integer, but is " +
                         std::string(py::repr(item)) + ".");
  }
  throw py::error_already_set();
}

Capsules collate(PooledCollator& self, const py::object& given) {
  thread_local BatchRows batch;
  const std::vector<std::int64_t> samples = read_samples(self, given);
  std::shared_ptr<const Slab> slab;
  {
    const Unlocked unlocked;
    slab = self.collate(samples, batch);
  }
  self.count(batch.layout);
  return to_dlpack(self.collator->outputs(), batch.layout,
                   {.address = reinterpret_cast<std::uintptr_t>(slab->memory), .owner = slab});
}

Places collate_into(PooledCollator& self, const py::object& given,
                    const py::typing::Callable<py::int_(py::int_)>& allocate) {
  const std::vector<std::int64_t> samples = read_samples(self, given);
  BatchRows batch;
  {
    const Unlocked unlocked;
    self.collator->look_up(samples, batch);
  }
  const Layout& layout = batch.layout;
  const auto address = allocate(layout.bytes).template cast<std::uintptr_t>();
  {
    const Unlocked unlocked;
    self.collator->write(batch, reinterpret_cast<std::byte*>(address));
  }
  self.count(layout);
  return to_places(self.collator->outputs(), layout);
}

py::typing::Dict<py::str, Counts> truncated(const PooledCollator& self) {
  py::typing::Dict<py::str, Counts> result;
  for (std::size_t o = 0; o < self.truncated.size(); ++o) {
    const Output& output = self.collator->outputs()[o];
    if (output.source == Output::Source::kValues && self.truncated[o].samples > 0) {
      Counts counts;
      counts["samples"] = self.truncated[o].samples.load();
      counts["tokens"] = self.truncated[o].tokens.load();
      result[py::str(output.key)] = counts;
    }
  }
  return result;
}

}  // namespace

std::vector<std::int64_t> read_samples(const PooledCollator& self, const py::object& given) {
  if (py::isinstance<py::array>(given)) {
    const auto view = as_span<std::int64_t>(given.cast<py::array>(), "indices");
    return {view.begin(), view.end()};
  }
  // A copy, because an item's own `__index__` may do anything, also to a list.
  const auto sequence = py::reinterpret_steal<py::tuple>(PySequence_Tuple(given.ptr()));
  if (!sequence) {
    throw py::error_already_set();
  }
  std::vector<std::int64_t> samples;
  samples.reserve(sequence.size());
  for (const py::handle item : sequence) {
    const long long sample = PyLong_AsLongLong(item.ptr());
    if (sample == -1 && PyErr_Occurred() != nullptr) {
      throw_bad_sample(self, samples.size(), item);
    }
    samples.push_back(sample);
  }
  return samples;
}

Counts to_dict(const SlabPool::Use& use) {
  Counts result;
  result["slabs"] = use.slabs;
  result["lent"] = use.lent;
  result["bytes"] = use.bytes;
  result["allocations"] = use.allocations;
  return result;
}

void def_collate(py::module_& m) {
  py::class_<PooledCollator>(m, "Collator", "Makes batches of samples of some columns.")
      .def(py::init(&make_collator), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
           py::arg("outputs"), py::arg("rows").noconvert(), py::arg("pad_to_multiple_of"))
      .def_property_readonly(
          "num_samples", [](const PooledCollator& self) { return self.collator->num_samples(); })
      .def("collate", &collate, py::arg("samples"),
           "Return one DLPack capsule for each output, in memory that is used again.")
      .def("collate_into", &collate_into, py::arg("samples"), py::arg("allocate"),
           "Collate to the address that allocate(bytes) returns, a multiple of 64; return place, "
           "shape and strides of each output, in values.")
      .def(
          "most_bytes",
          [](const PooledCollator& self, std::uint64_t most_samples, std::uint64_t most_tokens) {
            return self.collator->most_bytes(most_samples, most_tokens);
          },
          py::arg("most_samples"), py::arg("most_tokens"),
          "Return the most bytes of a batch of so many samples and padded tokens.")
      .def_property_readonly("truncated", &truncated,
                             "Samples and tokens that max_length has cut, by key.")
      .def_property_readonly(
          "slabs", [](const PooledCollator& self) { return to_dict(self.pool->use()); },
          "Slabs of memory, how many are lent, the bytes of all, and allocations so far.");
}

}  // namespace evenstride
