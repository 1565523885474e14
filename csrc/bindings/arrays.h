// Arrays of Python and of the core, one as the other without a copy.
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/module.h"
#include "core/lengths.h"
#include "core/plan.h"

namespace evenstride {

// Throws TypeError unless `array` is 1-dimensional, contiguous and aligned.
inline void check_layout(const py::array& array, const char* name) {
  constexpr int kAligned = py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  if (array.ndim() != 1 || (array.flags() & py::array::c_style) == 0 ||
      (array.flags() & kAligned) == 0) {
    throw py::type_error("`" + std::string(name) +
                         "` must be a 1-dimensional, contiguous and aligned array.");
  }
}

// Views an array whose type has been checked.
template <class T>
std::span<const T> view_of(const py::array& array) {
  return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.size())};
}

// Views an array of exactly this type, or throws TypeError.
template <class T>
std::span<const T> as_span(const py::array& array, const char* name) {
  if (!array.dtype().equal(py::dtype::of<T>())) {
    throw py::type_error("`" + std::string(name) + "` must have dtype " +
                         std::string(py::str(py::dtype::of<T>())) + ", but has " +
                         std::string(py::str(array.dtype())) + ".");
  }
  check_layout(array, name);
  return view_of<T>(array);
}

// Views an array of the first of these types that it has, or throws TypeError.
template <class... Types>
std::variant<std::span<const Types>...> as_one_of(const py::array& array, const char* name) {
  check_layout(array, name);
  std::variant<std::span<const Types>...> view;
  const bool found =
      ((array.dtype().equal(py::dtype::of<Types>()) && (view = view_of<Types>(array), true)) ||
       ...);
  if (!found) {
    throw py::type_error("`" + std::string(name) + "` must hold integers, but has dtype " +
                         std::string(py::str(array.dtype())) + ".");
  }
  return view;
}

// Views lengths of any integer type, or throws TypeError.
inline Lengths as_lengths(const py::array& array) {
  return as_one_of<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t,
                   std::int16_t, std::int32_t, std::int64_t>(array, "lengths");
}

// Returns a read-only array that owns `values`, whose memory it shows as T.
template <class T, class Container>
py::array to_numpy(Container values) {
  static_assert(sizeof(T) == sizeof(*values.data()));
  auto owned = std::make_unique<Container>(std::move(values));
  const Container& kept = *owned;
  const py::capsule owner(owned.release(),
                          [](void* pointer) { delete static_cast<Container*>(pointer); });
  py::array_t<T> array(static_cast<py::ssize_t>(kept.size()),
                       reinterpret_cast<const T*>(kept.data()), owner);
  array.attr("flags").attr("writeable") = false;
  return array;
}

}  // namespace evenstride
