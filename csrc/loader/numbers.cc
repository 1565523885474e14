#include "loader/numbers.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace evenstride {
namespace {

std::vector<std::uint64_t> checked(std::uint64_t num_batches, std::vector<std::uint64_t> taken) {
  std::ranges::sort(taken);
  if (!taken.empty() && taken.back() >= num_batches) {
    throw std::invalid_argument("`taken` must hold batches in [0, " + std::to_string(num_batches) +
                                "), but holds " + std::to_string(taken.back()) + ".");
  }
  const auto repeated = std::ranges::adjacent_find(taken);
  if (repeated != taken.end()) {
    throw std::invalid_argument("`taken` must hold each batch once, but holds " +
                                std::to_string(*repeated) + " more than once.");
  }
  return taken;
}

}  // namespace

BatchNumbers::BatchNumbers(std::uint64_t num_batches, std::vector<std::uint64_t> taken)
    : taken_before_(checked(num_batches, std::move(taken))),
      num_places_(num_batches - taken_before_.size()) {
  for (const std::uint64_t batch : taken_before_) {
    add_taken(batch);
  }
  skip_taken();
}

std::uint64_t BatchNumbers::claim() {
  const std::uint64_t batch = next_batch_;
  ++next_batch_;
  ++next_place_;
  skip_taken();
  return batch;
}

void BatchNumbers::skip_taken() {
  while (num_skipped_ < taken_before_.size() && taken_before_[num_skipped_] == next_batch_) {
    ++num_skipped_;
    ++next_batch_;
  }
}

std::uint64_t BatchNumbers::place_of(std::uint64_t batch) const {
  const auto end = std::ranges::lower_bound(taken_before_, batch);
  return batch - static_cast<std::uint64_t>(end - taken_before_.begin());
}

void BatchNumbers::add_taken(std::uint64_t batch) {
  if (batch != first_) {
    later_.insert(batch);
  } else {
    ++first_;
    while (!later_.empty() && *later_.begin() == first_) {
      later_.erase(later_.begin());
      ++first_;
    }
  }
  ++num_taken_;
}

void BatchNumbers::remove_taken(std::uint64_t batch) {
  if (batch > first_) {
    later_.erase(batch);
  }
  while (first_ > batch) {
    --first_;
    if (first_ != batch) {
      later_.insert(first_);
    }
  }
  --num_taken_;
}

}  // namespace evenstride
