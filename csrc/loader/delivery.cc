#include "loader/delivery.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "loader/queues.h"

namespace evenstride {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// Longer patience could overflow the clock.
constexpr std::chrono::milliseconds kLongestPatience = std::chrono::hours(24);

// The time that threads have waited, all together.
class WaitingTime {
 public:
  void begin(Clock::time_point now) {
    total_ -= now.time_since_epoch();
    ++num_waiting_;
  }
  void end(Clock::time_point now) {
    total_ += now.time_since_epoch();
    --num_waiting_;
  }

  [[nodiscard]] std::int64_t num_waiting() const { return num_waiting_; }
  [[nodiscard]] double seconds(Clock::time_point now) const {
    return std::chrono::duration<double>(total_ + num_waiting_ * now.time_since_epoch()).count();
  }

 private:
  Clock::duration total_{};  // The ends less the beginnings.
  std::int64_t num_waiting_ = 0;
};

}  // namespace

// What threads wait on. Everything is guarded by `mutex`.
struct Delivery::State {
  using Result = DeliveryQueues::Result;

  // A consumer in `take`. Whoever brings what it waits for wakes it, and it alone.
  struct Waiter {
    explicit Waiter(std::uint32_t of_target) : target(of_target) {}

    std::uint32_t target;
    std::condition_variable woken;
    std::optional<Result> result;
  };
  using Line = std::deque<Waiter*>;  // First come, first served.

  explicit State(DeliveryOptions options)
      : queues(std::move(options)),
        lines(queues.options().in_order ? queues.options().num_targets : 1) {}

  // If not in_order, every ready batch is anybody's, so all wait in one line.
  Line& line_of(std::uint32_t target) { return lines[lines.size() == 1 ? 0 : target]; }

  std::optional<Result> take(std::uint32_t target);
  std::optional<Result> wait(std::uint32_t target, std::chrono::milliseconds patience, Lock& lock);
  void await_room(Lock& lock);
  void end_wait(WaitingTime& waits);
  // Producers wake one another: one batch taken can make room for several of them.
  void wake_producer();
  void serve(Line& line);
  void serve_all();

  std::mutex mutex;
  DeliveryQueues queues;
  std::vector<Line> lines;
  std::condition_variable room_made;
  std::condition_variable left;  // One who waited is gone.
  WaitingTime producers;
  WaitingTime consumers;
};

std::optional<Delivery::State::Result> Delivery::State::take(std::uint32_t target) {
  const bool was_thrown = queues.was_thrown();
  std::optional<Result> result = queues.take(target);
  if (queues.was_thrown() != was_thrown) {
    serve_all();
  }
  wake_producer();
  return result;
}

std::optional<Delivery::State::Result> Delivery::State::wait(std::uint32_t target,
                                                             std::chrono::milliseconds patience,
                                                             Lock& lock) {
  Waiter waiter(target);
  Line& line = line_of(target);
  line.push_back(&waiter);
  const auto beginning = Clock::now();
  const auto deadline = beginning + std::min(patience, kLongestPatience);
  consumers.begin(beginning);
  if (!waiter.woken.wait_until(lock, deadline, [&] { return waiter.result.has_value(); })) {
    line.erase(std::ranges::find(line, &waiter));
  }
  end_wait(consumers);
  return std::move(waiter.result);
}

void Delivery::State::await_room(Lock& lock) {
  producers.begin(Clock::now());
  room_made.wait(lock, [&] { return queues.nothing_left() || queues.has_room(); });
  end_wait(producers);
}

void Delivery::State::end_wait(WaitingTime& waits) {
  waits.end(Clock::now());
  if (queues.is_closed()) {
    left.notify_all();
  }
}

void Delivery::State::wake_producer() {
  if (queues.nothing_left()) {
    room_made.notify_all();
  } else if (queues.has_room()) {
    room_made.notify_one();
  }
}

// Gives those in line what there is for them, until there is nothing for the first.
void Delivery::State::serve(Line& line) {
  while (!line.empty()) {
    Waiter& waiter = *line.front();
    line.pop_front();  // Before the take, which serves all lines if it meets a failure.
    waiter.result = take(waiter.target);
    if (!waiter.result) {
      line.push_front(&waiter);
      return;
    }
    waiter.woken.notify_one();
  }
}

void Delivery::State::serve_all() {
  for (Line& line : lines) {
    serve(line);
  }
}

Delivery::Delivery(DeliveryOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Delivery::~Delivery() {
  if (!home_.is_here()) {
    [[maybe_unused]] State* const leaked = state_.release();
    return;
  }
  close();
  Lock lock(state_->mutex);
  state_->left.wait(
      lock, [&] { return state_->producers.num_waiting() + state_->consumers.num_waiting() == 0; });
}

std::optional<std::uint64_t> Delivery::claim() {
  if (!home_.is_here()) {
    return std::nullopt;
  }
  Lock lock(state_->mutex);
  DeliveryQueues& queues = state_->queues;
  if (!queues.nothing_left() && !queues.has_room()) {
    state_->await_room(lock);
  }
  if (queues.nothing_left()) {
    return std::nullopt;
  }
  const std::uint64_t batch = queues.claim();
  state_->wake_producer();
  return batch;
}

void Delivery::put(std::uint64_t batch, Parcel parcel) {
  if (!home_.is_here()) {
    return;
  }
  const std::lock_guard lock(state_->mutex);
  if (!state_->queues.is_unwanted(batch)) {
    state_->serve(state_->line_of(state_->queues.put(batch, std::move(parcel))));
  }
}

void Delivery::fail(std::uint64_t batch, std::exception_ptr failure) {
  if (!home_.is_here()) {
    return;
  }
  std::exception_ptr replaced;  // Dies unlocked: that may take other locks.
  const std::lock_guard lock(state_->mutex);
  if (!state_->queues.is_unwanted(batch)) {
    replaced = state_->queues.fail(batch, std::move(failure));
    state_->wake_producer();
    state_->serve_all();
  }
}

Delivery::Taken Delivery::take(std::uint32_t target, std::chrono::milliseconds patience) {
  State& state = state_here();
  check_target(target);
  std::optional<State::Result> result;
  {
    Lock lock(state.mutex);
    result = state.take(target);
    if (!result && patience > std::chrono::milliseconds::zero()) {
      result = state.wait(target, patience, lock);
    }
  }
  if (!result) {
    return {.outcome = Outcome::kTimeout};
  }
  if (result->failure) {
    std::rethrow_exception(result->failure);
  }
  return std::move(result->taken);
}

void Delivery::put_back(std::uint32_t target, Taken taken) {
  State& state = state_here();
  check_target(target);
  Parcel dropped;  // Dies unlocked.
  const std::lock_guard lock(state.mutex);
  dropped = state.queues.put_back(target, std::move(taken));
  state.serve(state.line_of(target));
}

bool Delivery::has_failed() const {
  State& state = state_here();
  const std::lock_guard lock(state.mutex);
  return state.queues.was_thrown();
}

void Delivery::leave(std::uint32_t target) {
  if (!home_.is_here()) {
    return;
  }
  check_target(target);
  DeliveryQueues::Queue dropped;  // Dies unlocked.
  const std::lock_guard lock(state_->mutex);
  dropped = state_->queues.leave(target);
  state_->wake_producer();
  state_->serve_all();
}

bool Delivery::is_closed() const {
  State& state = state_here();
  const std::lock_guard lock(state.mutex);
  return state.queues.is_closed();
}

std::optional<std::uint32_t> Delivery::target_of(std::uint64_t batch) const {
  const State& state = state_here();
  const DeliveryOptions& options = state.queues.options();
  if (!options.in_order) {
    return std::nullopt;
  }
  const std::uint64_t place = state.queues.numbers().place_of(batch);
  return static_cast<std::uint32_t>(place % options.num_targets);
}

void Delivery::close() {
  if (!home_.is_here()) {
    return;
  }
  DeliveryQueues::Rest dropped;  // Dies unlocked.
  const std::lock_guard lock(state_->mutex);
  dropped = state_->queues.close();
  state_->wake_producer();
  state_->serve_all();
}

std::vector<std::uint32_t> Delivery::queue_depths() const {
  State& state = state_here();
  const std::lock_guard lock(state.mutex);
  return state.queues.depths();
}

Delivery::Progress Delivery::progress() const {
  State& state = state_here();
  const std::lock_guard lock(state.mutex);
  const BatchNumbers& numbers = state.queues.numbers();
  return {.first = numbers.first(),
          .later = {numbers.later().begin(), numbers.later().end()},
          .num_taken = numbers.num_taken()};
}

Delivery::Waits Delivery::waits() const {
  State& state = state_here();
  const std::lock_guard lock(state.mutex);
  const auto now = Clock::now();
  return {.producers_s = state.producers.seconds(now), .consumers_s = state.consumers.seconds(now)};
}

void Delivery::check_target(std::uint32_t target) const {
  const std::uint32_t num_targets = state_->queues.options().num_targets;
  if (target >= num_targets) {
    throw std::invalid_argument("`target` must be in [0, " + std::to_string(num_targets) +
                                "), but is " + std::to_string(target) + ".");
  }
}

Delivery::State& Delivery::state_here() const {
  if (!home_.is_here()) {
    throw std::runtime_error(
        "Batches are delivered in the process that began the pass, but this one was forked from it "
        "since; begin a pass here.");
  }
  return *state_;
}

}  // namespace evenstride
