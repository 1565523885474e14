// Lets go of the interpreter's lock while native code works.
#pragma once

#include "bindings/module.h"

namespace evenstride {

// Lets go of the GIL while it lives.
//
// Unlike `py::gil_scoped_release` its end may unwind the thread: that is how CPython before 3.14
// ends a daemon thread that asks for the GIL when the interpreter has ended, and where it is not
// allowed the whole process is aborted.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  // NOLINTNEXTLINE(bugprone-unsafe-to-allow-exceptions)
  ~Unlocked() noexcept(false) { PyEval_RestoreThread(state_); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace evenstride
