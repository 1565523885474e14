#include "core/balanced.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace evenstride {
namespace {

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

// The next step of every bucket, and the window of slots that the bound leaves to it: step i of n
// may come in [floor(i * T / n), ceil((i + 1) * T / n)). T < kNever, so every slot has 32 bits.
//
// Arrays rather than buckets, because every slot scans one or two members of all of them.
struct Windows {
  Windows(std::span<const std::uint64_t> steps_per_bucket, std::uint32_t num_slots) {
    for (std::size_t bucket = 0; bucket < steps_per_bucket.size(); ++bucket) {
      const auto n = static_cast<std::uint32_t>(steps_per_bucket[bucket]);
      if (n != 0) {
        const bool is_whole = num_slots % n == 0;
        labels.push_back(static_cast<std::uint16_t>(bucket));
        steps.push_back(n);
        left.push_back(n);
        release.push_back(0);
        deadline.push_back(num_slots / n + (is_whole ? 0 : 1));
        last_deadline.push_back(0);
        boundary.push_back(num_slots / n);
        rest.push_back(num_slots % n);
      }
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return steps.size(); }

  // Goes on to the next step of this bucket.
  void advance(std::size_t bucket, std::uint32_t num_slots) noexcept {
    const std::uint32_t n = steps[bucket];
    last_deadline[bucket] = deadline[bucket];
    if (--left[bucket] == 0) {
      release[bucket] = kNever;
      return;
    }
    const std::uint64_t sum = std::uint64_t{rest[bucket]} + num_slots % n;
    const bool carry = sum >= n;
    release[bucket] = boundary[bucket];
    boundary[bucket] += num_slots / n + (carry ? 1 : 0);
    rest[bucket] = static_cast<std::uint32_t>(carry ? sum - n : sum);
    deadline[bucket] = boundary[bucket] + (rest[bucket] != 0 ? 1 : 0);
  }

  std::vector<std::uint16_t> labels;
  std::vector<std::uint32_t> steps;
  std::vector<std::uint32_t> left;
  std::vector<std::uint32_t> release;
  std::vector<std::uint32_t> deadline;
  std::vector<std::uint32_t> last_deadline;  // Of the last step placed; 0 before it.
  std::vector<std::uint32_t> boundary;  // floor((i + 1) * T / n), and the rest of the division.
  std::vector<std::uint32_t> rest;
};

// For each of the next kHorizon prefixes: its slots still free, less the steps that must still come
// in them. While none is negative, the steps left can all meet their deadlines (Hall's condition).
// A further horizon would leave a little more choice, and none would still be right.
class Slack {
 public:
  static constexpr std::uint32_t kHorizon = 64;

  Slack(const Windows& windows, std::uint32_t num_slots)
      : bias_(0 - num_slots), phases_(windows.size(), bias_) {
    for (std::uint32_t i = 0; i < kHorizon; ++i) {
      slack_[i] = next_slack(windows);
    }
  }

  // Returns the number of slots up to the first prefix with no slack, at most kHorizon.
  [[nodiscard]] std::uint32_t slots_to_first_tight() const noexcept {
    std::uint32_t i = 0;
    while (i < kHorizon - 1 && slack_[begin_ + i] != 0) {
      ++i;
    }
    return i + 1;
  }

  // Accounts for a step placed in the present slot that could have waited for so many more.
  void place(std::uint32_t spare_slots) noexcept {
    for (auto& slack : std::span(slack_).subspan(begin_, std::min(spare_slots, kHorizon))) {
      --slack;
    }
  }

  void next_slot(const Windows& windows) noexcept {
    if (++begin_ + kHorizon > slack_.size()) {
      std::copy(slack_.begin() + begin_, slack_.end(), slack_.begin());
      begin_ = 0;
    }
    slack_[begin_ + kHorizon - 1] = next_slack(windows);
  }

 private:
  // Steps due by prefix b are floor(b * n / T) a bucket; phases_ hold the remainders, raised by
  // 2^32 - T, so that a further step due shows as a carry out of 32 bits.
  std::uint16_t next_slack(const Windows& windows) noexcept {
    ++end_;
    std::uint32_t due = 0;
    std::uint32_t placed_early = 0;
    for (std::size_t bucket = 0; bucket < phases_.size(); ++bucket) {
      const std::uint32_t phase = phases_[bucket] + windows.steps[bucket];
      const bool is_due = phase < windows.steps[bucket];
      phases_[bucket] = is_due ? phase + bias_ : phase;
      due += is_due ? 1U : 0U;
      placed_early += windows.last_deadline[bucket] > end_ ? 1U : 0U;
    }
    free_ += 1 - due;
    return static_cast<std::uint16_t>(free_ - placed_early);
  }

  std::uint32_t bias_;
  std::vector<std::uint32_t> phases_;
  std::uint32_t end_ = 0;   // The farthest prefix.
  std::uint32_t free_ = 0;  // Its slots less the steps due by it; below the number of buckets.
  std::size_t begin_ = 0;
  std::array<std::uint16_t, 1024> slack_ = {};  // Slid, not wrapped: scans stay in line.
};

// Draws slot after slot.
class Balancer {
 public:
  Balancer(std::span<const std::uint64_t> steps_per_bucket, std::uint32_t num_slots,
           bool avoids_last, Stream stream)
      : num_slots_(num_slots),
        avoids_last_(avoids_last),
        stream_(stream),
        windows_(steps_per_bucket, num_slots),
        slack_(windows_, num_slots),
        weights_(windows_.size()),
        used_(windows_.size()),
        last_(windows_.size()) {}

  void begin_group() noexcept { std::ranges::fill(used_, 0); }

  // Returns the label of the next slot.
  std::uint16_t next() noexcept {
    const std::uint32_t total = weigh_candidates();
    const std::size_t bucket = total == 0 ? earliest_deadline() : draw(total);
    ++used_[bucket];
    slack_.place(windows_.deadline[bucket] - 1 - slot_);
    windows_.advance(bucket, num_slots_);
    slack_.next_slot(windows_);
    last_ = bucket;
    ++slot_;
    return windows_.labels[bucket];
  }

 private:
  // Returns the sum of the weights: those of the buckets that may come now.
  std::uint32_t weigh_candidates() noexcept {
    const std::uint32_t tight = slot_ + slack_.slots_to_first_tight();
    std::uint32_t total = 0;
    for (std::size_t bucket = 0; bucket < weights_.size(); ++bucket) {
      const bool may_come = windows_.release[bucket] <= slot_ && windows_.deadline[bucket] <= tight;
      weights_[bucket] = may_come ? windows_.steps[bucket] : 0;
      total += weights_[bucket];
    }
    return avoids_last_ ? without_last(total) : least_used(total);
  }

  std::uint32_t without_last(std::uint32_t total) noexcept {
    if (last_ == weights_.size() || weights_[last_] == total ||
        windows_.steps[last_] >= num_slots_ - windows_.steps[last_]) {
      return total;
    }
    return total - std::exchange(weights_[last_], 0);
  }

  std::uint32_t least_used(std::uint32_t total) noexcept {
    std::uint32_t least = kNever;
    for (std::size_t bucket = 0; bucket < weights_.size(); ++bucket) {
      least = std::min(least, weights_[bucket] != 0 ? used_[bucket] : kNever);
    }
    for (std::size_t bucket = 0; bucket < weights_.size(); ++bucket) {
      const std::uint32_t dropped = used_[bucket] == least ? 0 : weights_[bucket];
      weights_[bucket] -= dropped;
      total -= dropped;
    }
    return total;
  }

  [[nodiscard]] std::size_t draw(std::uint32_t total) const noexcept {
    std::uint64_t point = multiply_high(stream_(slot_), total);
    std::size_t bucket = 0;
    for (; point >= weights_[bucket]; ++bucket) {
      point -= weights_[bucket];
    }
    return bucket;
  }

  // Always among the right choices, also where the horizon shows none.
  [[nodiscard]] std::size_t earliest_deadline() const noexcept {
    std::size_t earliest = weights_.size();
    for (std::size_t bucket = 0; bucket < weights_.size(); ++bucket) {
      if (windows_.release[bucket] <= slot_ &&
          (earliest == weights_.size() ||
           windows_.deadline[bucket] < windows_.deadline[earliest])) {
        earliest = bucket;
      }
    }
    return earliest;
  }

  std::uint32_t num_slots_;
  bool avoids_last_;
  Stream stream_;
  Windows windows_;
  Slack slack_;
  std::vector<std::uint32_t> weights_;
  std::vector<std::uint32_t> used_;  // Steps of each bucket in the present group.
  std::size_t last_;                 // The bucket before; none at first.
  std::uint32_t slot_ = 0;
};

}  // namespace

std::vector<std::uint16_t> balanced_order(std::span<const std::uint64_t> steps_per_bucket,
                                          std::uint64_t group_size, Stream stream, Watch& watch) {
  const std::uint64_t total =
      std::accumulate(steps_per_bucket.begin(), steps_per_bucket.end(), std::uint64_t{0});
  std::vector<std::uint16_t> labels(total);
  Balancer balancer(steps_per_bucket, static_cast<std::uint32_t>(total), group_size == 1,
                    stream.substream(0));
  const std::uint64_t work = balanced_work(steps_per_bucket.size());
  const std::size_t piece = 1 + kStepsPerCheck / (16 + steps_per_bucket.size());
  const auto draw_labels = [&](std::span<std::uint16_t> some) {
    in_counted_pieces(
        watch, 0, some.size(), work,
        [&](std::size_t begin, std::size_t end) {
          std::ranges::generate(some.subspan(begin, end - begin), [&] { return balancer.next(); });
        },
        piece);
  };
  if (group_size == 1) {
    draw_labels(labels);
    return labels;
  }
  const Stream inside_groups = stream.substream(1);
  for (std::uint64_t begin = 0; begin < total;) {
    const auto group = std::span(labels).subspan(begin, std::min(group_size, total - begin));
    balancer.begin_group();
    draw_labels(group);
    shuffle(group, Draws(inside_groups.substream(begin)), watch);
    begin += group.size();
  }
  return labels;
}

}  // namespace evenstride
