// Tells a process from the one that it was forked from, where threads and locks were left behind.
#pragma once

#include <cstdint>

namespace evenstride {

// Remembers the process that made it.
class HomeProcess {
 public:
  // Throws std::bad_alloc if the system cannot watch for forks.
  HomeProcess();

  // Returns whether this is that process still, and not one that was forked from it. Takes a few
  // nanoseconds and no lock.
  [[nodiscard]] bool is_here() const noexcept;

 private:
  std::uint64_t generation_;
};

}  // namespace evenstride
