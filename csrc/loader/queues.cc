#include "loader/queues.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/checks.h"

namespace evenstride {
namespace {

DeliveryOptions checked(DeliveryOptions options) {
  check_count("num_targets", options.num_targets);
  check_count("depth", options.depth);
  check_count("num_producers", options.num_producers);
  return options;
}

}  // namespace

DeliveryQueues::DeliveryQueues(DeliveryOptions options)
    : options_(checked(std::move(options))),
      num_targets_(options_.num_targets),
      room_(num_targets_ * options_.depth),
      numbers_(options_.num_batches, std::exchange(options_.taken, {})),
      queues_(num_targets_),
      has_left_(num_targets_) {}

bool DeliveryQueues::nothing_left() const {
  return is_closed_ || failure_ || numbers_.next_place() == numbers_.num_places();
}

bool DeliveryQueues::has_room() const {
  if (options_.in_order) {
    return queues_[numbers_.next_place() % num_targets_].slots.size() < options_.depth;
  }
  return numbers_.next_place() - num_taken_ < room_ &&
         numbers_.next_batch() - numbers_.first() < room_ + options_.num_producers;
}

std::uint64_t DeliveryQueues::claim() {
  const std::uint64_t place = numbers_.next_place();
  const std::uint64_t batch = numbers_.claim();
  if (options_.in_order) {
    queues_[place % num_targets_].slots.push_back({batch, false, nullptr});
  }
  skip_left();
  return batch;
}

bool DeliveryQueues::has_left(std::uint64_t place) const {
  return options_.in_order && has_left_[place % num_targets_];
}

// Passes over the places of targets that have left.
void DeliveryQueues::skip_left() {
  while (numbers_.next_place() < numbers_.num_places() && has_left(numbers_.next_place())) {
    numbers_.claim();
  }
}

bool DeliveryQueues::is_unwanted(std::uint64_t batch) const {
  const std::uint64_t place = numbers_.place_of(batch);
  return is_closed_ || was_thrown_ || has_left(place) || (failure_ && place > failed_place_);
}

std::uint32_t DeliveryQueues::put(std::uint64_t batch, Parcel parcel) {
  std::uint32_t target = 0;
  if (options_.in_order) {
    target = static_cast<std::uint32_t>(numbers_.place_of(batch) % num_targets_);
    Slot& slot = *std::ranges::lower_bound(queues_[target].slots, batch, {}, &Slot::batch);
    slot.is_ready = true;
    slot.parcel = std::move(parcel);
  } else {
    target = shortest_queue();
    insert(queues_[target], {batch, true, std::move(parcel)});
  }
  ++queues_[target].num_ready;
  return target;
}

// In rising order: one that was long in the making would hold the window if it came last.
void DeliveryQueues::insert(Queue& queue, Slot slot) {
  auto after = queue.slots.end();
  while (after != queue.slots.begin() && std::prev(after)->batch > slot.batch) {
    --after;
  }
  queue.slots.insert(after, std::move(slot));
}

DeliveryQueues::Parcel DeliveryQueues::put_back(std::uint32_t target, Taken taken) {
  numbers_.remove_taken(taken.batch);
  --num_taken_;
  // Without an order, what a target that has left gives back is anybody's.
  if (is_closed_ || (options_.in_order && has_left_[target])) {
    return std::move(taken.parcel);
  }
  Queue& queue = queues_[target];
  insert(queue, {taken.batch, true, std::move(taken.parcel)});
  ++queue.num_ready;
  --queue.num_taken;
  return nullptr;
}

std::uint32_t DeliveryQueues::shortest_queue() {
  const auto after = [&](std::uint32_t target) { return (target + 1) % options_.num_targets; };
  std::uint32_t shortest = turn_;
  for (std::uint32_t target = after(turn_); target != turn_; target = after(target)) {
    if (queues_[target].num_ready < queues_[shortest].num_ready) {
      shortest = target;
    }
  }
  turn_ = after(shortest);
  return shortest;
}

std::exception_ptr DeliveryQueues::fail(std::uint64_t batch, std::exception_ptr failure) {
  failed_place_ = numbers_.place_of(batch);
  was_thrown_ |= !options_.in_order;
  return std::exchange(failure_, std::move(failure));
}

std::optional<DeliveryQueues::Result> DeliveryQueues::take(std::uint32_t target) {
  if (is_closed_) {
    return Result{{.outcome = Delivery::Outcome::kClosed}, nullptr};
  }
  if (has_left_[target]) {
    return Result{{.outcome = Delivery::Outcome::kEnd}, nullptr};
  }
  if (meets_failure(target)) {
    was_thrown_ = true;
    return Result{{.outcome = Delivery::Outcome::kBatch}, failure_};
  }
  if (Queue* const queue = source_of(target); queue != nullptr) {
    return Result{take_from(*queue), nullptr};
  }
  if (is_over(target)) {
    return Result{{.outcome = Delivery::Outcome::kEnd}, nullptr};
  }
  return std::nullopt;
}

// Precondition: in_order.
std::uint64_t DeliveryQueues::next_place_of(std::uint32_t target) const {
  return target + queues_[target].num_taken * num_targets_;
}

bool DeliveryQueues::meets_failure(std::uint32_t target) const {
  return failure_ && (was_thrown_ || next_place_of(target) >= failed_place_);
}

bool DeliveryQueues::is_over(std::uint32_t target) const {
  const std::uint64_t num_places = numbers_.num_places();
  return options_.in_order ? next_place_of(target) >= num_places : num_taken_ == num_places;
}

// Returns the queue whose first batch this target takes now, or null.
DeliveryQueues::Queue* DeliveryQueues::source_of(std::uint32_t target) {
  Queue* source = &queues_[target];
  if (source->slots.empty() && !options_.in_order) {
    for (Queue& queue : queues_) {
      if (!queue.slots.empty() &&
          (source->slots.empty() || queue.slots.front().batch < source->slots.front().batch)) {
        source = &queue;
      }
    }
  }
  return source->slots.empty() || !source->slots.front().is_ready ? nullptr : source;
}

DeliveryQueues::Taken DeliveryQueues::take_from(Queue& queue) {
  Slot& slot = queue.slots.front();
  numbers_.add_taken(slot.batch);
  Taken taken{
      .outcome = Delivery::Outcome::kBatch, .batch = slot.batch, .parcel = std::move(slot.parcel)};
  queue.slots.pop_front();
  --queue.num_ready;
  ++queue.num_taken;
  ++num_taken_;
  return taken;
}

DeliveryQueues::Queue DeliveryQueues::leave(std::uint32_t target) {
  if (is_closed_) {
    return {};
  }
  has_left_[target] = true;
  if (!options_.in_order) {
    return {};  // Its batches are anybody's.
  }
  skip_left();
  return std::exchange(queues_[target], {});
}

DeliveryQueues::Rest DeliveryQueues::close() {
  is_closed_ = true;
  return {.queues = std::exchange(queues_, {}), .failure = std::exchange(failure_, nullptr)};
}

std::vector<std::uint32_t> DeliveryQueues::depths() const {
  std::vector<std::uint32_t> depths(num_targets_);
  for (std::size_t target = 0; target < queues_.size(); ++target) {
    depths[target] = queues_[target].num_ready;
  }
  return depths;
}

}  // namespace evenstride
