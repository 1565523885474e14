#include "core/edges_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "core/random.h"

namespace evenstride {
namespace {

// Part of the definition of a cost: another key finds other edges.
constexpr Stream kDrawOrder{0x6576656E73747264};

// Enough that even a narrow bucket has ranks of its own, and few enough to stay in the cache.
constexpr std::uint64_t kMaxRanks = 1 << 17;

// A bucket with fewer ranks than this, but more samples, looks up its draws in the histogram.
constexpr std::uint32_t kFewRanks = 64;

// Small enough that no set that was measured pads visibly more for it; with 64, a long-tailed set
// in 6 buckets already does, by 0.2 %, and has no fewer batches.
constexpr std::uint64_t kOverheadsABatch = 128;

// How many samples of a small data set are filled for the mean cost of a bucket: at least 4 orders,
// which take as long as the draws of a larger set.
constexpr std::size_t kDrawsOfFew = 1024;

// Costs fill this many bits, so that neither a sum overflows nor a small data set is rounded away.
constexpr int kCostBits = 62;

// More buckets than any plan has: their last batches count in the sum of costs.
constexpr std::uint64_t kManyBuckets = 1 << 13;

__extension__ using Wide = unsigned __int128;

int bit_width(Wide value) {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  return high != 0 ? 64 + static_cast<int>(std::bit_width(high))
                   : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value)));
}

// Returns the limits for samples that are given by their widths, all admitted.
FillLimits limits_to_widths(FillLimits limits) {
  limits.admitted_end = kUnlimited;
  return limits;
}

}  // namespace

WidthHistogram width_histogram(const LengthHistogram& histogram, std::uint64_t pad_to_multiple_of) {
  WidthHistogram result;
  std::uint64_t samples = 0;
  for (std::size_t i = 0; i < histogram.lengths.size(); ++i) {
    const std::uint64_t width = width_of(histogram.lengths[i], pad_to_multiple_of);
    if (result.widths.empty() || width != result.widths.back()) {
      result.widths.push_back(width);
      result.samples_below.push_back(samples);
    }
    samples += histogram.counts[i];
  }
  result.samples_below.push_back(samples);
  return result;
}

BucketCosts::BucketCosts(const WidthHistogram& histogram, const FillLimits& limits,
                         std::size_t num_draws)
    : histogram_(histogram),
      limits_(limits),
      num_draws_(num_draws),
      bounds_(limits_to_widths(limits), kFewSamples) {
  const std::uint64_t num_samples = histogram.samples_below.back();
  tokens_below_.reserve(histogram.widths.size() + 1);
  tokens_below_.push_back(0);
  for (std::size_t i = 0; i < histogram.widths.size(); ++i) {
    const std::uint64_t samples = histogram.samples_below[i + 1] - histogram.samples_below[i];
    tokens_below_.push_back(tokens_below_[i] + static_cast<Wide>(histogram.widths[i]) * samples);
  }

  std::vector<std::uint32_t> order(num_draws);
  std::iota(order.begin(), order.end(), 0);
  shuffle(std::span(order), Draws(kDrawOrder));
  for (const std::uint32_t place : order) {
    const auto step = std::uint64_t{1} << 32 >> std::countr_zero(num_draws);
    fractions_.push_back(static_cast<std::uint32_t>(place * step + step / 2));
  }

  const std::uint64_t num_ranks = std::min(num_samples, kMaxRanks);
  const auto sample_of = [&](std::uint64_t rank) {
    return static_cast<std::uint64_t>((Wide{2} * rank + 1) * num_samples / (Wide{2} * num_ranks));
  };
  width_of_rank_.reserve(num_ranks);
  first_rank_.reserve(histogram.widths.size() + 1);
  std::uint64_t sample = sample_of(0);
  for (std::size_t i = 0; i < histogram.widths.size(); ++i) {
    first_rank_.push_back(static_cast<std::uint32_t>(width_of_rank_.size()));
    while (width_of_rank_.size() < num_ranks && sample < histogram.samples_below[i + 1]) {
      width_of_rank_.push_back(static_cast<std::uint32_t>(i));
      sample = sample_of(width_of_rank_.size());
    }
  }
  first_rank_.push_back(static_cast<std::uint32_t>(num_ranks));

  // Capacities fall as widths rise, so that the widths that admit so many samples are the first.
  admitted_.resize(num_draws + 2);
  std::size_t widths = histogram.widths.size();
  for (std::size_t samples = 1; samples <= num_draws; ++samples) {
    while (widths > 0 && capacity_of(histogram.widths[widths - 1], limits) < samples) {
      --widths;
    }
    admitted_[samples] = static_cast<std::uint32_t>(widths);
  }
  admitted_[num_draws + 1] = 0;

  const Wide widest = histogram.widths.back();
  const Wide full = std::min(Wide{limits.token_budget}, limits.max_batch_size * widest);
  const Wide largest = std::min(full, num_samples * widest);
  batch_overhead_ =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(largest / kOverheadsABatch));
  const Wide bound = num_samples * (widest + batch_overhead_) +
                     kManyBuckets * (std::max(full, widest) + batch_overhead_);
  shift_ = kCostBits - bit_width(bound);

  if (num_samples <= kFewSamples) {
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < histogram.widths.size(); ++i) {
      samples.resize(histogram.samples_below[i + 1], Sample{histogram.widths[i]});
    }
    for (std::size_t i = 0; i < kDrawsOfFew / samples.size(); ++i) {
      shuffle(std::span(orders_.emplace_back(samples)), Draws(kDrawOrder.substream(i)));
    }
  }
}

std::uint64_t BucketCosts::operator()(std::size_t first, std::size_t last) const {
  const std::uint64_t samples = histogram_.samples_below[last] - histogram_.samples_below[first];
  if (capacity_of(histogram_.widths[first], limits_) == 1) {
    return scaled(
        tokens_below_[last] - tokens_below_[first] + static_cast<Wide>(samples) * batch_overhead_,
        1, 1);
  }
  if (!orders_.empty()) {
    return cost_of_few(first, last);
  }
  std::array<std::uint32_t, kMaxDraws> draws;
  draw(first, last, draws.data());
  const Batches filled = fill_draws(draws.data());
  const Wide tokens = filled.padded_tokens + static_cast<Wide>(filled.batches) * batch_overhead_;
  const std::uint64_t missing =
      scaled(tokens, filled.samples - filled.batches, filled.samples * filled.batches) / 2;
  return std::max(scaled(tokens, 1, filled.batches),
                  scaled(tokens, samples, filled.samples) + missing);
}

std::uint64_t BucketCosts::without_padding(std::size_t first, std::size_t last) const {
  return scaled(tokens_below_[last] - tokens_below_[first], 1, 1);
}

void BucketCosts::draw(std::size_t first, std::size_t last, std::uint32_t* draws) const {
  const std::uint64_t first_sample = histogram_.samples_below[first];
  const std::uint64_t samples = histogram_.samples_below[last] - first_sample;
  const std::uint32_t first_rank = first_rank_[first];
  const std::uint64_t ranks = first_rank_[last] - first_rank;
  if (ranks >= std::min<std::uint64_t>(samples, kFewRanks)) {
    const std::uint32_t* const widths = width_of_rank_.data() + first_rank;
    for (std::size_t i = 0; i < num_draws_; ++i) {
      draws[i] = widths[(ranks * fractions_[i]) >> 32];
    }
    return;
  }
  const auto begin = histogram_.samples_below.begin();
  for (std::size_t i = 0; i < num_draws_; ++i) {
    const auto sample = first_sample + static_cast<std::uint64_t>(
                                           (static_cast<Wide>(samples) * fractions_[i]) >> 32);
    const auto above = std::upper_bound(begin + static_cast<std::ptrdiff_t>(first),
                                        begin + static_cast<std::ptrdiff_t>(last), sample);
    draws[i] = static_cast<std::uint32_t>(above - begin - 1);
  }
}

BucketCosts::Batches BucketCosts::fill_draws(const std::uint32_t* draws) const {
  const std::size_t mask = num_draws_ - 1;
  const std::uint32_t* const admitted = admitted_.data();
  Batches result{};
  for (std::size_t begin = 0; begin < num_draws_;) {
    std::uint32_t longest = draws[begin];
    std::size_t size = 1;
    for (std::uint32_t next = 0;; longest = next, ++size) {
      next = std::max(longest, draws[(begin + size) & mask]);
      if (next >= admitted[size + 1]) {
        break;
      }
    }
    if (size == num_draws_) {  // Every draw is in, and it might take more: all batches are alike.
      const std::uint64_t width = histogram_.widths[longest];
      const std::uint64_t capacity = capacity_of(width, limits_);
      const std::uint64_t rest =
          capacity > limits_.batch_size_multiple ? capacity % limits_.batch_size_multiple : 0;
      return {static_cast<Wide>(width) * (capacity - rest), capacity - rest, 1};
    }
    if (const std::size_t rest = size % limits_.batch_size_multiple; rest != 0 && rest != size) {
      size -= rest;
      longest = 0;
      for (std::size_t i = 0; i < size; ++i) {
        longest = std::max(longest, draws[(begin + i) & mask]);
      }
    }
    result.padded_tokens += static_cast<Wide>(histogram_.widths[longest]) * size;
    result.samples += size;
    ++result.batches;
    begin += size;
  }
  return result;
}

std::uint64_t BucketCosts::cost_of_few(std::size_t first, std::size_t last) const {
  const std::uint64_t narrowest = histogram_.widths[first];
  const std::uint64_t widest = histogram_.widths[last - 1];
  const auto size =
      static_cast<std::size_t>(histogram_.samples_below[last] - histogram_.samples_below[first]);
  Wide tokens = 0;
  for (const std::vector<Sample>& order : orders_) {
    std::array<Sample, kFewSamples + 1> bucket;
    std::size_t found = 0;
    for (const Sample sample : order) {
      bucket[found] = sample;
      found += sample.width >= narrowest && sample.width <= widest ? 1 : 0;
    }
    fill_all(std::span<const Sample>(bucket.data(), size), bounds_, [&](const Cut& cut) {
      tokens += static_cast<Wide>(cut.end - cut.begin) * cut.longest + batch_overhead_;
    });
  }
  return scaled(tokens, 1, orders_.size());
}

std::uint64_t BucketCosts::scaled(Wide tokens, std::uint64_t times, std::uint64_t parts) const {
  // Whole tokens and the rest apart, for all of it times `times` can overflow 128 bits.
  const Wide whole = tokens / parts * times;
  const Wide rest = tokens % parts * times;
  // Rounded up, so that a bucket whose parts cost as much is not dearer than they are.
  if (shift_ < 0) {
    const Wide unit = Wide{1} << -shift_;
    return static_cast<std::uint64_t>((whole + rest / parts + (unit - 1)) >> -shift_);
  }
  return static_cast<std::uint64_t>((whole << shift_) + ((rest << shift_) + (parts - 1)) / parts);
}

}  // namespace evenstride
