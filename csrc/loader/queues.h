// The rules of a delivery: who may claim, what goes where, who gets what. No thread waits here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "loader/delivery.h"
#include "loader/numbers.h"

namespace evenstride {

// The queues of a `Delivery`, whose comments say what these functions do. Not thread-safe.
class DeliveryQueues {
 public:
  using Parcel = Delivery::Parcel;
  using Taken = Delivery::Taken;

  // What a take comes to.
  struct Result {
    Taken taken;
    std::exception_ptr failure;  // Thrown instead, if not null.
  };

  struct Slot {
    std::uint64_t batch;
    bool is_ready;
    Parcel parcel;
  };
  // Ready batches in rising order; if in_order, those that are being made as well.
  struct Queue {
    std::deque<Slot> slots;
    std::uint32_t num_ready = 0;
    std::uint64_t num_taken = 0;
  };

  explicit DeliveryQueues(DeliveryOptions options);

  [[nodiscard]] bool nothing_left() const;
  [[nodiscard]] bool has_room() const;
  // Precondition: has_room() && !nothing_left().
  std::uint64_t claim();

  // Returns whether nobody will take this batch, so that it need not be put.
  [[nodiscard]] bool is_unwanted(std::uint64_t batch) const;
  // Returns the target whose queue it went to. Precondition: the batch was claimed, and is neither
  // put nor unwanted.
  std::uint32_t put(std::uint64_t batch, Parcel parcel);
  // Returns the failure whose place this one takes, if any. Same precondition.
  std::exception_ptr fail(std::uint64_t batch, std::exception_ptr failure);

  // Undoes a take. Returns the parcel if nobody will take it any more: its end may take other
  // locks. Precondition: this target has taken the batch.
  [[nodiscard]] Parcel put_back(std::uint32_t target, Taken taken);

  // Returns what a take of this target comes to now, if that is known.
  std::optional<Result> take(std::uint32_t target);
  // Whether the failure was thrown once, so that every take throws it.
  [[nodiscard]] bool was_thrown() const noexcept { return was_thrown_; }

  // Returns what nobody will take any more, whose end may take other locks.
  Queue leave(std::uint32_t target);

  struct Rest {
    std::vector<Queue> queues;
    std::exception_ptr failure;
  };
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_; }
  // Likewise.
  Rest close();

  [[nodiscard]] const DeliveryOptions& options() const noexcept { return options_; }
  [[nodiscard]] const BatchNumbers& numbers() const noexcept { return numbers_; }
  [[nodiscard]] std::vector<std::uint32_t> depths() const;

 private:
  [[nodiscard]] std::uint64_t next_place_of(std::uint32_t target) const;
  [[nodiscard]] bool has_left(std::uint64_t place) const;
  void skip_left();
  [[nodiscard]] bool meets_failure(std::uint32_t target) const;
  [[nodiscard]] bool is_over(std::uint32_t target) const;
  std::uint32_t shortest_queue();
  static void insert(Queue& queue, Slot slot);
  Queue* source_of(std::uint32_t target);
  Taken take_from(Queue& queue);

  DeliveryOptions options_;
  std::uint64_t num_targets_;
  std::uint64_t room_;  // Of all targets together.
  BatchNumbers numbers_;
  std::vector<Queue> queues_;    // One a target; none once closed.
  std::vector<bool> has_left_;   // Whether a target takes no more.
  std::uint64_t num_taken_ = 0;  // Of those claimed here.
  std::uint32_t turn_ = 0;       // The target that is first among equals.
  std::exception_ptr failure_;
  std::uint64_t failed_place_ = 0;
  bool was_thrown_ = false;
  bool is_closed_ = false;
};

}  // namespace evenstride
