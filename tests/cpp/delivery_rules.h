// What a delivery does, by its definition.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "loader/delivery.h"
#include "samples.h"

namespace evenstride::testing {

// The comments of `Delivery` and its options, transcribed: slow, and without counters.
class DeliveryRules {
 public:
  explicit DeliveryRules(const DeliveryOptions& options)
      : options_(options), queues_(options.num_targets) {
    for (std::uint64_t batch = 0; batch < options.num_batches; ++batch) {
      if (!contains(options.taken, batch)) {
        left_.push_back(batch);
      }
    }
    taken_ = options.taken;
  }

  std::optional<std::uint64_t> claim() {
    if (claimed_.size() == left_.size() || !has_room()) {
      return std::nullopt;
    }
    claimed_.push_back(left_.at(claimed_.size()));
    return claimed_.back();
  }

  void put(std::uint64_t batch) {
    if (options_.in_order) {
      ready_.push_back(batch);
      return;
    }
    std::size_t shortest = turn_;
    for (std::size_t step = 0; step < queues_.size(); ++step) {
      const std::size_t target = (turn_ + step) % queues_.size();
      if (queues_.at(target).size() < queues_.at(shortest).size()) {
        shortest = target;
      }
    }
    queues_.at(shortest).push_back(batch);
    std::sort(queues_.at(shortest).begin(), queues_.at(shortest).end());
    turn_ = (shortest + 1) % queues_.size();
  }

  std::string take(std::uint32_t target) {
    return options_.in_order ? take_in_order(target) : take_any(target);
  }

  [[nodiscard]] Values depths() const {
    Values depths;
    for (std::size_t target = 0; target < queues_.size(); ++target) {
      depths.push_back(queues_.at(target).size());
      for (const std::uint64_t batch : ready_) {
        depths.back() += target_of(batch) == target;
      }
    }
    return depths;
  }

 private:
  static bool contains(const Values& batches, std::uint64_t batch) {
    return std::find(batches.begin(), batches.end(), batch) != batches.end();
  }

  [[nodiscard]] std::uint64_t target_of(std::uint64_t batch) const {
    const auto place = std::find(left_.begin(), left_.end(), batch) - left_.begin();
    return static_cast<std::uint64_t>(place) % options_.num_targets;
  }

  [[nodiscard]] bool has_room() const {
    const std::uint64_t next = left_.at(claimed_.size());
    std::uint64_t untaken = 0;
    for (const std::uint64_t batch : claimed_) {
      untaken +=
          !contains(taken_, batch) && (!options_.in_order || target_of(batch) == target_of(next));
    }
    if (options_.in_order) {
      return untaken < options_.depth;
    }
    std::uint64_t first = 0;
    while (contains(taken_, first)) {
      ++first;
    }
    const std::uint64_t room = std::uint64_t{options_.num_targets} * options_.depth;
    return untaken < room && next - first < room + options_.num_producers;
  }

  std::string take_in_order(std::uint32_t target) {
    for (const std::uint64_t batch : left_) {
      if (target_of(batch) == target && !contains(taken_, batch)) {
        const auto ready = std::find(ready_.begin(), ready_.end(), batch);
        if (ready == ready_.end()) {
          return "nothing yet";
        }
        ready_.erase(ready);
        taken_.push_back(batch);
        return std::to_string(batch);
      }
    }
    return "end";
  }

  std::string take_any(std::uint32_t target) {
    auto* queue = &queues_.at(target);
    if (queue->empty()) {
      for (auto& other : queues_) {
        if (!other.empty() && (queue->empty() || other.front() < queue->front())) {
          queue = &other;
        }
      }
    }
    if (queue->empty()) {
      return taken_.size() == options_.num_batches ? "end" : "nothing yet";
    }
    const std::uint64_t batch = queue->front();
    queue->pop_front();
    taken_.push_back(batch);
    return std::to_string(batch);
  }

  DeliveryOptions options_;
  Values left_;     // Of the pass, by place.
  Values claimed_;  // Rising.
  Values taken_;
  Values ready_;                                   // If in_order.
  std::vector<std::deque<std::uint64_t>> queues_;  // If not.
  std::size_t turn_ = 0;
};

}  // namespace evenstride::testing
