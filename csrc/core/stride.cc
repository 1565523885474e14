#include "core/stride.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace evenstride {
namespace {

constexpr std::uint64_t kSliceSteps = 2048;
constexpr std::uint64_t kSliceStepsPerBucket = 8;

struct LabelledStride {
  Stride stride;
  std::uint16_t label;
};

// The places in [slice, slice + 1) / 2^slice_bits of the epoch, and the memory to order them.
//
// Places lie so evenly that a slice of n of them, cut into n cells, has about one in a cell. So
// counting by cell all but sorts them, at a cost that does not depend on the number of buckets, as
// that of a merge would.
class Slice {
 public:
  void order(std::span<const LabelledStride> strides, std::uint64_t slice, unsigned slice_bits,
             std::span<std::uint16_t> all_labels) {
    const std::uint64_t begin = find_steps(strides, slice, slice_bits);
    const auto labels = all_labels.subspan(begin, unsorted_.size());
    collect(strides, slice_bits);
    distribute(strides, labels);
    insert(labels);
  }

 private:
  // Sizes the memory, and returns how many steps come before this slice.
  std::uint64_t find_steps(std::span<const LabelledStride> strides, std::uint64_t slice,
                           unsigned slice_bits) {
    const unsigned shift = 64 - slice_bits;
    const bool is_last = (slice + 1) >> slice_bits != 0;
    std::uint64_t before = 0;
    std::uint64_t inside = 0;
    steps_.clear();
    for (const auto& [stride, label] : strides) {
      const std::uint64_t first = slice == 0 ? 0 : stride.first_from(slice << shift);
      const std::uint64_t last =
          is_last ? stride.num_steps() : stride.first_from((slice + 1) << shift);
      steps_.emplace_back(first, last);
      before += first;
      inside += last - first;
    }
    unsorted_.resize(inside);
    places_.resize(inside);
    cells_.assign(inside, 0);
    return before;
  }

  [[nodiscard]] std::size_t cell_of(std::uint64_t place) const noexcept {
    return multiply_high(place, cells_.size());
  }

  // Lists the places bucket by bucket, as fractions of the slice, and turns the counts of the cells
  // into their first positions.
  void collect(std::span<const LabelledStride> strides, unsigned slice_bits) noexcept {
    auto next = unsorted_.begin();
    for (std::size_t bucket = 0; bucket < strides.size(); ++bucket) {
      for (auto [step, end] = steps_[bucket]; step < end; ++step) {
        const std::uint64_t place = strides[bucket].stride.place(step) << slice_bits;
        *next++ = place;
        ++cells_[cell_of(place)];
      }
    }
    std::exclusive_scan(cells_.begin(), cells_.end(), cells_.begin(), std::uint32_t{0});
  }

  // Keeps the order of buckets inside a cell, which is that of equal places.
  void distribute(std::span<const LabelledStride> strides,
                  std::span<std::uint16_t> labels) noexcept {
    auto next = unsorted_.begin();
    for (std::size_t bucket = 0; bucket < strides.size(); ++bucket) {
      const auto end =
          next + static_cast<std::ptrdiff_t>(steps_[bucket].second - steps_[bucket].first);
      for (; next != end; ++next) {
        const std::uint32_t position = cells_[cell_of(*next)]++;
        places_[position] = *next;
        labels[position] = strides[bucket].label;
      }
    }
  }

  void insert(std::span<std::uint16_t> labels) noexcept {
    for (std::size_t i = 1; i < places_.size(); ++i) {
      const std::uint64_t place = places_[i];
      const std::uint16_t label = labels[i];
      std::size_t hole = i;
      for (; hole > 0 && places_[hole - 1] > place; --hole) {
        places_[hole] = places_[hole - 1];
        labels[hole] = labels[hole - 1];
      }
      places_[hole] = place;
      labels[hole] = label;
    }
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps_;  // [first, last) of each bucket.
  std::vector<std::uint64_t> unsorted_;
  std::vector<std::uint64_t> places_;
  std::vector<std::uint32_t> cells_;
};

}  // namespace

std::vector<std::uint16_t> stride_order(std::span<const std::uint64_t> steps_per_bucket,
                                        std::uint32_t jitter, Stream stream, unsigned slice_bits,
                                        Team& team) {
  std::vector<LabelledStride> strides;
  std::uint64_t num_steps = 0;
  for (std::size_t bucket = 0; bucket < steps_per_bucket.size(); ++bucket) {
    if (steps_per_bucket[bucket] != 0) {
      const Stride stride(steps_per_bucket[bucket], jitter, stream.substream(bucket));
      strides.push_back({.stride = stride, .label = static_cast<std::uint16_t>(bucket)});
      num_steps += steps_per_bucket[bucket];
    }
  }
  std::vector<std::uint16_t> labels(num_steps);
  std::vector<Slice> slices(static_cast<std::size_t>(team.size()));
  team.for_each(std::size_t{1} << slice_bits, [&](std::size_t slice, int member) {
    slices[static_cast<std::size_t>(member)].order(strides, slice, slice_bits, labels);
  });
  return labels;
}

unsigned stride_slice_bits(std::uint64_t num_steps, std::size_t num_buckets) noexcept {
  return static_cast<unsigned>(
      std::bit_width(num_steps / std::max(kSliceSteps, kSliceStepsPerBucket * num_buckets)));
}

}  // namespace evenstride
