#include "loader/process.h"

#ifndef _WIN32  // Where no process is a copy of another.
#include <pthread.h>
#endif

#include <atomic>
#include <new>

namespace evenstride {
namespace {

// Rises in every child. A comparison of process ids would cost a system call each.
std::atomic<std::uint64_t>& generation() noexcept {
  static constinit std::atomic<std::uint64_t> value{0};
  return value;
}

#ifdef _WIN32
constexpr int kRegistrationError = 0;
#else
void begin_generation() noexcept {
  generation().fetch_add(1, std::memory_order_relaxed);
}

// When the library is loaded, not at the first use: a lock that guards a first use could itself be
// held by another thread during a fork.
const int kRegistrationError = pthread_atfork(nullptr, nullptr, &begin_generation);
#endif

}  // namespace

HomeProcess::HomeProcess() : generation_(generation().load(std::memory_order_relaxed)) {
  if (kRegistrationError != 0) {
    throw std::bad_alloc();
  }
}

bool HomeProcess::is_here() const noexcept {
  return generation_ == generation().load(std::memory_order_relaxed);
}

}  // namespace evenstride
