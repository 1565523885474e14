#include "bindings/placed.h"

#include <pybind11/stl.h>

#include <cstddef>

#include "collate/dtype.h"

namespace evenstride {

std::vector<std::int64_t> shape_of(const Output& output, const Layout& layout,
                                   const Layout::Array& array) {
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(layout.num_samples)};
  if (output.source == Output::Source::kLengths) {
    return shape;
  }
  if (output.column->is_ragged()) {
    shape.push_back(static_cast<std::int64_t>(array.width));
  }
  if (output.source == Output::Source::kValues) {
    const std::vector<std::uint64_t>& cell = output.column->cell_shape();
    shape.insert(shape.end(), cell.begin(), cell.end());
  }
  return shape;
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

Places to_places(const std::vector<Output>& outputs, const Layout& layout) {
  Places places;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const std::vector<std::int64_t> shape = shape_of(outputs[o], layout, layout.arrays[o]);
    places.append(py::make_tuple(layout.arrays[o].offset / size_of(outputs[o].dtype), shape,
                                 strides_of(shape)));
  }
  return places;
}

}  // namespace evenstride
