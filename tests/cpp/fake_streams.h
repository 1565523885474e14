// Work of a device's streams that waits until a schedule runs it, in an order that they allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace evenstride::testing {

// When work runs. Prompt: at once. Lazy: not before a host waits for it, and then no more than
// that. Random: some of it at each call, of any stream that can go on; how fast the device is, and
// how fast each stream, changes all the time.
enum class FakeSchedule : std::uint8_t { kPrompt, kLazy, kRandom };

// Not thread-safe.
class FakeStreams {
 public:
  using Stream = std::uintptr_t;

  // A point that a stream will come to.
  struct Mark {
    Stream stream = 0;
    bool is_done = false;
  };

  FakeStreams(FakeSchedule schedule, std::uint64_t seed) : schedule_(schedule), random_(seed) {}

  void add(Stream stream, std::function<void()> work) {
    queues_[stream].push_back({.work = std::move(work), .awaited = nullptr});
  }

  std::shared_ptr<const Mark> add_mark(Stream stream) {
    auto mark = std::make_shared<Mark>(Mark{.stream = stream});
    add(stream, [mark] { mark->is_done = true; });
    return mark;
  }

  void add_wait(Stream stream, std::shared_ptr<const Mark> awaited) {
    queues_[stream].push_back({.work = [] {}, .awaited = std::move(awaited)});
  }

  // What may happen beside any call of the host.
  void pass_time() {
    if (schedule_ == FakeSchedule::kPrompt) {
      finish();
    } else if (schedule_ == FakeSchedule::kRandom) {
      if (below(20) == 0) {
        slowness_ = std::uint64_t{1} << below(10);
        weights_.clear();
      }
      while (below(slowness_ + 1) == 0 && step()) {
      }
    }
  }

  // What must happen before a host that waits for a mark goes on.
  void finish(const Mark& mark) {
    while (!mark.is_done) {
      if (schedule_ == FakeSchedule::kLazy) {
        const std::shared_ptr<const Mark> awaited = queues_[mark.stream].front().awaited;
        if (awaited != nullptr) {
          finish(*awaited);
        }
        run_first(mark.stream);
      } else {
        step();
      }
    }
  }

  void finish() {
    while (step()) {
    }
  }

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  std::mt19937_64& random() { return random_; }

 private:
  struct Work {
    std::function<void()> work;
    std::shared_ptr<const Mark> awaited;
  };

  // Runs one piece of work that can run, and returns whether there was one.
  bool step() {
    std::vector<Stream> ready;
    for (const auto& [stream, queue] : queues_) {
      if (!queue.empty() && (queue.front().awaited == nullptr || queue.front().awaited->is_done)) {
        ready.insert(ready.end(), weight_of(stream), stream);
      }
    }
    if (!ready.empty()) {
      run_first(ready[below(ready.size())]);
    }
    return !ready.empty();
  }

  std::size_t weight_of(Stream stream) {
    return weights_.try_emplace(stream, std::size_t{1} << 2 * below(4)).first->second;
  }

  void run_first(Stream stream) {
    const Work first = std::move(queues_[stream].front());
    queues_[stream].pop_front();
    first.work();
  }

  FakeSchedule schedule_;
  std::mt19937_64 random_;
  std::map<Stream, std::deque<Work>> queues_;
  std::uint64_t slowness_ = 1;             // How seldom work runs beside a call of the host.
  std::map<Stream, std::size_t> weights_;  // How often a stream goes on where others could.
};

}  // namespace evenstride::testing
