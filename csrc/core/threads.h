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

namespace evenstride {

// Returns how many processors this process may run on, at least 1: those that it is bound to, and
// as many as its control groups grant, a part of one counted as one. What they grant is read once.
[[nodiscard]] int available_processors();

// The caller's thread and `num_threads - 1` helpers, which wait between loops and end with the
// team.
class Team {
 public:
  // Precondition: num_threads >= 1. The team is smaller where the system grants fewer threads.
  explicit Team(int num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(task, member) once for every task in [0, num_tasks), in any order, at most one at a
  // time for each member in [0, size()), and returns when all have ended. Everything that a body
  // wrote is visible afterwards. If a body throws, tasks not begun are skipped and the first
  // exception is rethrown. Call it from the thread that made the team, and not from a body.
  void for_each(std::size_t num_tasks, const std::function<void(std::size_t, int)>& body);

 private:
  void help(int member);
  void work(int member);

  std::vector<std::thread> helpers_;
  const std::function<void(std::size_t, int)>* body_ = nullptr;
  std::size_t num_tasks_ = 0;
  std::atomic<std::size_t> next_task_{0};
  std::atomic<std::uint32_t> loop_{0};     // Rises by one when a loop begins, and once at the end.
  std::atomic<std::uint32_t> resting_{0};  // Helpers that have finished the present loop.
  bool ended_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace evenstride
