// Hands out numbers of batches to producers, and finished batches to consumers.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "loader/process.h"

namespace evenstride {

struct DeliveryOptions {
  std::uint64_t num_batches = 0;
  // Batches that a loaded state has already; each once.
  std::vector<std::uint64_t> taken{};  // NOLINT(readability-redundant-member-init): GCC wants it.
  std::uint32_t num_targets = 1;
  std::uint32_t depth = 1;  // Batches of a target that are ready or being made, at most.
  std::uint32_t num_producers = 1;
  bool in_order = true;
};

// The queues of one pass. Batches are numbered from 0; a batch itself is anything.
//
// in_order: target k gets the batches k, k + targets, ... of those not yet taken, in that order.
// Otherwise whatever is ready goes to the shortest queue, ties in turn, to be taken in rising
// order; and a target whose queue is empty takes the lowest first batch of the others', so that one
// that has stopped blocks nobody, and no batch waits behind it. Then the batches made but not taken
// are fewer than targets * depth + producers, in either order. Thread-safe.
//
// It works in the process that made it. In one that was forked since, where its producers are not,
// nothing is claimed or kept, and what would take or count batches throws std::runtime_error; no
// call waits there.
class Delivery {
 public:
  using Parcel = std::shared_ptr<void>;

  // Throws std::invalid_argument if `taken` holds a batch twice or one that there is not, or if
  // another number than num_batches is 0.
  explicit Delivery(DeliveryOptions options);
  // Closes, and returns once no thread waits inside.
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // For producers: returns the next batch to make, once there is room for it, or nothing when no
  // batch is left or the delivery is closed. Each batch is claimed once, in rising order.
  //
  // There is room for at most `depth` batches of each target, claimed and not taken, if in_order;
  // else for targets * depth in all, none of them targets * depth + producers or more beyond the
  // first batch that is not taken.
  [[nodiscard]] std::optional<std::uint64_t> claim();
  // Delivers a batch that was claimed. After `close`, drops it.
  void put(std::uint64_t batch, Parcel parcel);
  // Delivers a failure instead of a batch that was claimed: in its turn if in_order, at once
  // otherwise. No batch after it is claimed.
  void fail(std::uint64_t batch, std::exception_ptr failure);

  enum class Outcome : std::uint8_t { kBatch, kEnd, kTimeout, kClosed };
  struct Taken {
    Outcome outcome;
    std::uint64_t batch = 0;
    Parcel parcel = nullptr;
  };
  // For consumers: takes the next batch of a target, waiting for it for a while. kEnd: this target
  // gets no more. A failure that was delivered is thrown, to every consumer that meets it: if
  // in_order, where this target's next batch would not be before it, or after it was thrown once.
  // Throws std::invalid_argument if there is no such target. Takes O(targets) time beside waits.
  [[nodiscard]] Taken take(std::uint32_t target, std::chrono::milliseconds patience);

  // Whether a failure was thrown once, so that every take throws it.
  [[nodiscard]] bool has_failed() const;

  // Lets a target take no more. If in_order, its batches are neither made nor taken from now on,
  // and the others go on without them; otherwise the others take them. Idempotent.
  void leave(std::uint32_t target);

  [[nodiscard]] bool is_closed() const;
  // Gives back a batch that this target has taken, whose consumer was interrupted before it had it:
  // it is taken again, and has not been until then.
  void put_back(std::uint32_t target, Taken taken);

  // Returns the target that a batch is for, if that is fixed: if in_order.
  [[nodiscard]] std::optional<std::uint32_t> target_of(std::uint64_t batch) const;

  // Wakes everybody; nothing is claimed, kept or taken from now on. Idempotent.
  void close();

  [[nodiscard]] std::vector<std::uint32_t> queue_depths() const;  // Ready batches of each target.

  struct Progress {
    std::uint64_t first;               // Every batch below it has been taken.
    std::vector<std::uint64_t> later;  // Taken beyond it, rising.
    std::uint64_t num_taken;           // In all, those of `options.taken` included.
  };
  [[nodiscard]] Progress progress() const;

  // Waits that go on are counted up to now.
  struct Waits {
    double producers_s;  // Seconds that producers waited for room, all together.
    double consumers_s;  // Seconds that consumers waited for a batch, all together.
  };
  [[nodiscard]] Waits waits() const;

 private:
  struct State;

  // Throws std::runtime_error in a forked process.
  [[nodiscard]] State& state_here() const;
  void check_target(std::uint32_t target) const;

  HomeProcess home_;
  // Apart, because a forked process must leak it: there, to destroy a condition variable waits for
  // threads that do not exist.
  std::unique_ptr<State> state_;
};

}  // namespace evenstride
