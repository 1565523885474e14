// Forked processes, and conditions that come true in a while.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace evenstride::testing {

// Returns whether `body`, called in a forked process, returns true there in less than ten seconds.
template <class Body>
bool holds_in_a_fork(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    bool holds = false;
    try {
      holds = body();
    } catch (...) {
      _exit(2);
    }
    _exit(holds ? 0 : 1);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

// Returns whether the condition comes true in less than ten seconds.
template <class Condition>
bool eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace evenstride::testing
