#include "collate/column.h"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/unlocked.h"

namespace evenstride {
namespace {

void check_contiguous(const py::array& array, const char* name) {
  if ((array.flags() & py::array::c_style) == 0) {
    throw py::type_error("`" + std::string(name) + "` must be a contiguous array.");
  }
}

// Views integers of one of the four types, at any alignment.
PackedIntegers as_packed(const py::array& array, const char* name) {
  using Type = PackedIntegers::Type;
  check_contiguous(array, name);
  const auto* memory = static_cast<const std::byte*>(array.data());
  const auto size = static_cast<std::uint64_t>(array.size());
  const py::dtype dtype = array.dtype();
  if (dtype.equal(py::dtype::of<std::int32_t>())) {
    return {memory, size, Type::kInt32};
  }
  if (dtype.equal(py::dtype::of<std::uint32_t>())) {
    return {memory, size, Type::kUInt32};
  }
  if (dtype.equal(py::dtype::of<std::int64_t>())) {
    return {memory, size, Type::kInt64};
  }
  if (dtype.equal(py::dtype::of<std::uint64_t>())) {
    return {memory, size, Type::kUInt64};
  }
  throw py::type_error("`" + std::string(name) +
                       "` must hold 32-bit or 64-bit integers, but has dtype " +
                       std::string(py::str(dtype)) + ".");
}

Chunk chunk_of(const Column& column, const py::array& values) {
  check_contiguous(values, "values");
  const auto bytes = static_cast<std::uint64_t>(values.nbytes());
  if (bytes % column.cell_bytes() != 0) {
    throw py::value_error(column.described() + " must have values of a multiple of " +
                          std::to_string(column.cell_bytes()) + " bytes, but has " +
                          std::to_string(bytes) + ".");
  }
  Chunk chunk;
  chunk.values = static_cast<const std::byte*>(values.data());
  chunk.num_cells = bytes / column.cell_bytes();
  return chunk;
}

void append(Column& column, const Chunk& chunk) {
  const Unlocked unlocked;
  column.append(chunk);
}

template <class T>
py::array lengths_as(const Column& column) {
  py::array_t<T> lengths(static_cast<py::ssize_t>(column.num_rows()));
  const std::span<T> view(lengths.mutable_data(), column.num_rows());
  const Unlocked unlocked;
  column.lengths(view);
  return lengths;
}

py::array lengths_of(const Column& column) {
  return column.longest() > std::numeric_limits<std::int32_t>::max()
             ? lengths_as<std::int64_t>(column)
             : lengths_as<std::int32_t>(column);
}

// Views a row as numpy's type of the same name; bfloat16, which numpy lacks, as uint16.
py::array row_of(const py::object& self, std::uint64_t number) {
  const auto& column = self.cast<const Column&>();
  if (number >= column.num_rows()) {
    throw py::index_error("`row` must be in [0, " + std::to_string(column.num_rows()) +
                          "), but is " + std::to_string(number) + ".");
  }
  const Row row = column.row(number);
  const std::string_view name =
      column.dtype() == DType::kBFloat16 ? "uint16" : name_of(column.dtype());
  py::array array(
      py::dtype(std::string(name)),
      std::vector<py::ssize_t>{static_cast<py::ssize_t>(row.length * column.cell_values())}, {},
      row.values, self);
  array.attr("flags").attr("writeable") = false;
  return array;
}

}  // namespace

void def_column(py::module_& m) {
  py::class_<Column, std::shared_ptr<Column>>(
      m, "Column", "Rows of one field, in chunks that are read where they lie.")
      .def(py::init([](std::string name, std::string origin, const std::string& dtype,
                       std::vector<std::uint64_t> cell_shape, bool is_ragged) {
             return std::make_shared<Column>(std::move(name), std::move(origin),
                                             parse_dtype("dtype", dtype), std::move(cell_shape),
                                             is_ragged);
           }),
           py::arg("name"), py::arg("origin"), py::arg("dtype"), py::arg("cell_shape"),
           py::arg("is_ragged"))
      .def(
          "append_offsets",
          [](Column& column, const py::array& values, const py::array& offsets) {
            Chunk chunk = chunk_of(column, values);
            chunk.rows = Chunk::Rows::kOffsets;
            chunk.bounds = as_packed(offsets, "offsets");
            chunk.num_rows = chunk.bounds.size() - 1;
            append(column, chunk);
          },
          py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::arg("values").noconvert(),
          py::arg("offsets").noconvert(), "Append rows [offsets[i], offsets[i + 1]) of the values.")
      .def(
          "append_ranges",
          [](Column& column, const py::array& values, const py::array& starts,
             const py::array& lengths, std::uint64_t start_bytes) {
            Chunk chunk = chunk_of(column, values);
            chunk.rows = Chunk::Rows::kRanges;
            chunk.bounds = as_packed(starts, "starts");
            chunk.bounds_lengths = as_packed(lengths, "lengths");
            chunk.start_bytes = start_bytes;
            chunk.num_rows = chunk.bounds.size();
            append(column, chunk);
          },
          py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::keep_alive<1, 4>(),
          py::arg("values").noconvert(), py::arg("starts").noconvert(),
          py::arg("lengths").noconvert(), py::arg("start_bytes"),
          "Append rows of lengths[i] cells from byte starts[i] * start_bytes of the values on.")
      .def(
          "append_rows",
          [](Column& column, const py::array& values) {
            Chunk chunk = chunk_of(column, values);
            chunk.rows = Chunk::Rows::kSingle;
            chunk.num_rows = chunk.num_cells;
            append(column, chunk);
          },
          py::keep_alive<1, 2>(), py::arg("values").noconvert(), "Append one row for each cell.")
      .def_property_readonly("name", &Column::name)
      .def_property_readonly(
          "dtype", [](const Column& column) { return std::string(name_of(column.dtype())); })
      .def_property_readonly("cell_values", &Column::cell_values)
      .def_property_readonly("cell_shape",
                             [](const Column& column) {
                               using Shape = py::typing::Tuple<py::int_, py::ellipsis>;
                               return Shape(py::tuple(py::cast(column.cell_shape())));
                             })
      .def_property_readonly("is_ragged", &Column::is_ragged)
      .def_property_readonly("num_rows", &Column::num_rows)
      .def_property_readonly("longest", &Column::longest)
      .def("lengths", &lengths_of, "Return the length of every row, in cells.")
      .def("row", &row_of, py::arg("row"), "Return a read-only view of the values of a row.");
}

}  // namespace evenstride
