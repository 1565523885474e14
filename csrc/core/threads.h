// A team of threads that lives as long as one call, so that nothing of it survives a fork.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/watch.h"

namespace evenstride {

// Returns how many processors this process may run on, at least 1: those that it is bound to, and
// as many as its control groups grant, a part of one counted as one. What they grant is read once.
[[nodiscard]] int available_processors();

// The caller's thread and `num_threads - 1` helpers, which wait between loops and end with the
// team. Helpers have the priority of the thread that made the team.
class Team {
 public:
  // Precondition: num_threads >= 1. The team is smaller where the system grants fewer threads. A
  // watch must outlive the team; it is checked before every task.
  explicit Team(int num_threads, Watch* watch = nullptr);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(helpers_.size()) + 1; }

  // Returns the watch, or one of its own that nobody stops.
  [[nodiscard]] Watch& watch() const noexcept { return *watch_; }

  // Calls body(task, member) once for every task in [0, num_tasks), in any order, at most one at a
  // time for each member in [0, size()), and returns when all have ended. Everything that a body
  // wrote is visible afterwards. If a body throws, tasks not begun are skipped and the first
  // exception is rethrown. Each task that has ended counts `work` for the watch. Call it from the
  // thread that made the team, and not from a body.
  void for_each(std::size_t num_tasks, const std::function<void(std::size_t, int)>& body,
                std::uint64_t work = 0);

 private:
  void help(int member);
  void do_tasks(int member);

  Watch own_watch_;
  Watch* watch_;
  std::vector<std::thread> helpers_;
  const std::function<void(std::size_t, int)>* body_ = nullptr;
  std::size_t num_tasks_ = 0;
  std::uint64_t work_ = 0;  // Of each task.
  std::atomic<std::size_t> next_task_{0};
  std::atomic<std::uint32_t> loop_{0};     // Rises by one when a loop begins, and once at the end.
  std::atomic<std::uint32_t> resting_{0};  // Helpers that have finished the present loop.
  bool ended_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace evenstride
