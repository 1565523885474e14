// Python objects that C++ keeps.
#pragma once

#include <memory>

#include "bindings/module.h"

namespace evenstride {

// Returns a Python object that any thread may let go of, with or without the GIL. Needs the GIL.
inline std::shared_ptr<PyObject> shared(py::object object) {
  return {object.release().ptr(), [](PyObject* owned) {
            // At the end of the interpreter there is nothing left to give it back to.
            if (Py_IsInitialized() != 0) {
              const py::gil_scoped_acquire locked;
              Py_DECREF(owned);
            }
          }};
}

}  // namespace evenstride
