#include "core/threads.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "core/cgroup.h"

namespace evenstride {
namespace {

// A loop follows the last one within microseconds, a wake-up costs tens of them: look a while
// first.
constexpr int kLooks = 4000;

void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int look = 0; look < kLooks; ++look) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

#ifdef __linux__
// Read once. No lock guards it, since another thread could hold that during a fork.
double granted_processors() {
  static constinit std::atomic<double> granted{0};
  if (granted.load(std::memory_order_relaxed) == 0) {
    granted.store(std::ceil(processors_of_cgroups()), std::memory_order_relaxed);
  }
  return granted.load(std::memory_order_relaxed);
}
#endif

}  // namespace

int available_processors() {
  int processors = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    processors = CPU_COUNT(&allowed);
  }
  processors = static_cast<int>(std::min<double>(processors, granted_processors()));
#endif
  return std::max(1, processors);
}

Team::Team(int num_threads, Watch* watch) : watch_(watch == nullptr ? &own_watch_ : watch) {
  helpers_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int member = 1; member < num_threads; ++member) {
    try {
      helpers_.emplace_back(&Team::help, this, member);
    } catch (...) {
      break;  // No more threads to be had: a smaller team does the same.
    }
  }
}

Team::~Team() {
  ended_ = true;
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  for (std::thread& helper : helpers_) {
    helper.join();
  }
}

void Team::for_each(std::size_t num_tasks, const std::function<void(std::size_t, int)>& body,
                    std::uint64_t work) {
  body_ = &body;
  num_tasks_ = num_tasks;
  work_ = work;
  next_task_.store(0, std::memory_order_relaxed);
  resting_.store(0, std::memory_order_relaxed);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  do_tasks(0);
  const auto everyone = static_cast<std::uint32_t>(helpers_.size());
  for (auto resting = resting_.load(std::memory_order_acquire); resting != everyone;
       resting = resting_.load(std::memory_order_acquire)) {
    wait_while_equal(resting_, resting);
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void Team::help(int member) {
  for (std::uint32_t seen = 0;;) {
    wait_while_equal(loop_, seen);
    ++seen;
    if (ended_) {
      return;
    }
    do_tasks(member);
    resting_.fetch_add(1, std::memory_order_release);
    resting_.notify_one();
  }
}

void Team::do_tasks(int member) {
  for (;;) {
    const std::size_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks_) {
      return;
    }
    try {
      watch_->check();
      (*body_)(task, member);
      if (work_ != 0) {
        watch_->advance(work_);
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) {
        failure_ = std::current_exception();
      }
      next_task_.store(num_tasks_, std::memory_order_relaxed);
    }
  }
}

}  // namespace evenstride
