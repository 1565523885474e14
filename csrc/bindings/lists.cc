// Batches as lists of Python ints: what every DataLoader and dataset understands.
#include <pybind11/typing.h>

#include <algorithm>
#include <variant>

#include "bindings/arrays.h"
#include "bindings/module.h"

namespace evenstride {
namespace {

template <class Index>
py::list to_list(std::span<const Index> indices) {
  // Made by hand, since an array's tolist() takes twice as long.
  py::list list(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    PyObject* const item = PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(indices[i]));
    if (item == nullptr) {
      throw py::error_already_set();
    }
    PyList_SET_ITEM(list.ptr(), static_cast<py::ssize_t>(i), item);
  }
  return list;
}

using Lists = py::typing::List<py::typing::List<py::int_>>;

Lists batch_lists(const py::array& indices, const py::array& offsets, std::size_t begin,
                  std::size_t end, std::size_t stride) {
  const auto bounds = as_span<std::int64_t>(offsets, "offsets");
  if (stride == 0 || bounds.empty()) {
    throw py::value_error("`stride` must be at least 1, and `offsets` must not be empty.");
  }
  const auto view =
      as_one_of<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>(indices, "indices");
  return std::visit(
      [&](const auto& values) {
        Lists lists;
        for (std::size_t batch = begin; batch < std::min(end, bounds.size() - 1); batch += stride) {
          const auto first = static_cast<std::size_t>(bounds[batch]);
          const auto last = static_cast<std::size_t>(bounds[batch + 1]);
          if (first > last || last > values.size()) {
            throw py::value_error("`offsets` must rise from 0 to the number of indices.");
          }
          lists.append(to_list(values.subspan(first, last - first)));
        }
        return lists;
      },
      view);
}

}  // namespace

void def_lists(py::module_& m) {
  m.def("batch_lists", &batch_lists, py::arg("indices").noconvert(), py::arg("offsets").noconvert(),
        py::arg("begin"), py::arg("end"), py::arg("stride"),
        "Return batches begin, begin + stride, ... below end, each a list of int.");
}

}  // namespace evenstride
