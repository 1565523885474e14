// Runs long work so that it can be interrupted, and tells how far it is.
#pragma once

#include <pybind11/typing.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

#include "bindings/module.h"
#include "bindings/unlocked.h"
#include "core/lengths.h"
#include "core/watch.h"
#include "loader/helper.h"

namespace evenstride {

// What is told how much of the work is done, in [0, 1].
using Progress = std::optional<py::typing::Callable<void(double)>>;

// Work on fewer samples is over before anyone could wait for it.
inline constexpr std::size_t kFewSamples = std::size_t{1} << 20;

// And edges of fewer buckets are found before.
inline constexpr std::uint64_t kManyBuckets = 16;

[[nodiscard]] inline bool takes_long(const Lengths& lengths) {
  return num_samples(lengths) >= kFewSamples;
}

// Returns work(watch), which is called without the GIL.
//
// Long work has a thread of its own, and this one looks for signals and calls `progress` twenty
// times a second. What a signal's handler or `progress` raises stops the work and is raised here.
// No thread is left behind. A child that either of them forked cannot go on with the work: there it
// throws std::runtime_error.
template <class Work>
[[nodiscard]] auto watched(bool is_long, const Progress& progress, Work work) {
  using Result = std::invoke_result_t<Work, Watch&>;
  if (!is_long) {
    const Unlocked unlocked;
    Watch watch;
    return work(watch);
  }
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  std::optional<Helper<Result>> started;
  try {
    started.emplace(work);
  } catch (const std::system_error&) {  // No more threads to be had.
    return watched(false, progress, std::move(work));
  }
  Helper<Result>& helper = *started;
  for (;;) {
    bool is_done = false;
    {
      const Unlocked unlocked;
      is_done = helper.wait_for(kBetweenLooks);
    }
    if (is_done) {
      return helper.take();
    }
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
    if (progress && helper.is_here()) {
      (*progress)(helper.fraction());
    }
    if (!helper.is_here()) {
      throw std::runtime_error("A plan cannot be finished in a process that was forked amid it.");
    }
  }
}

}  // namespace evenstride
