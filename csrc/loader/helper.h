// One piece of long work in a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/watch.h"
#include "loader/process.h"

namespace evenstride {

// Work in a thread of its own. At its end it is stopped and waited for; but not in
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
  // Asks the work to stop: it throws Stopped, unless it has ended before it looks.
  void stop() noexcept {
    if (is_here()) {
      shared_->watch.stop();
    }
  }

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

}  // namespace evenstride
