// Runs long work so that it can be interrupted, and tells how far it is.
#pragma once

#include <pybind11/typing.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "bindings/module.h"
#include "bindings/unlocked.h"
#include "core/lengths.h"
#include "core/watch.h"
#include "loader/process.h"

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

// Work in a thread of its own, without the GIL. At its end it is stopped and waited for; but not in
// a child that was forked meanwhile, where there is no such thread.
template <class Result>
class Helper {
 public:
  template <class Work>
  explicit Helper(Work work) : shared_(std::make_unique<Shared>()) {
    shared_->thread = std::thread([shared = shared_.get(), work = std::move(work)] {
      std::optional<Result> result;
      std::exception_ptr failure;
      try {
        result.emplace(work(shared->watch));
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(shared->mutex);
      shared->result = std::move(result);
      shared->failure = std::move(failure);
      shared->is_done = true;
      shared->done.notify_one();
    });
  }

  ~Helper() {
    if (is_here()) {
      shared_->watch.stop();
      if (shared_->thread.joinable()) {
        shared_->thread.join();
      }
    } else {
      (void)shared_.release();  // NOLINT(bugprone-unused-return-value): nobody can end it here.
    }
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  [[nodiscard]] bool is_here() const noexcept { return home_.is_here(); }
  [[nodiscard]] double fraction() const noexcept { return shared_->watch.fraction(); }

  // Returns whether the work has ended, now or within `timeout`.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) {
    std::unique_lock lock(shared_->mutex);
    return shared_->done.wait_for(lock, timeout, [this] { return shared_->is_done; });
  }

  // Returns what the work returned, or throws what it threw. Precondition: it has ended.
  [[nodiscard]] Result take() {
    shared_->thread.join();
    if (shared_->failure) {
      std::rethrow_exception(std::exchange(shared_->failure, nullptr));
    }
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): what has not failed has a result.
    return *std::move(shared_->result);
  }

 private:
  struct Shared {
    Watch watch;
    std::thread thread;
    std::mutex mutex;
    std::condition_variable done;
    bool is_done = false;
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  HomeProcess home_;
  std::unique_ptr<Shared> shared_;
};

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
