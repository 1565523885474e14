// Which bucket a sample belongs to, which samples are no part of the epoch, and how many of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/fill.h"
#include "core/lengths.h"
#include "core/threads.h"

namespace evenstride {

enum class TooLong : std::uint8_t { kError, kDrop, kAlone };
enum class Empty : std::uint8_t { kKeep, kDrop, kError };

// Return the value of this name: 'error', 'drop' or 'alone'; 'keep', 'drop' or 'error'. Throw
// std::invalid_argument if it is none of them.
[[nodiscard]] TooLong parse_too_long(std::string_view name);
[[nodiscard]] Empty parse_empty(std::string_view name);

// What decides whether a sample is admitted.
struct Admission {
  std::uint64_t max_length = kUnlimited;
  TooLong too_long = TooLong::kError;
  Empty empty = Empty::kKeep;
};

// Returns the end of the lengths that are not too long: lengths in [0, end) are at most
// `max_length` and their width fits the budget. Precondition: the budget is at least
// `pad_to_multiple_of`.
[[nodiscard]] std::uint64_t end_of_admitted(const FillLimits& limits,
                                            std::uint64_t max_length) noexcept;

// Returns the end of the lengths that can be planned at all: their widths are below 2^63.
[[nodiscard]] std::uint64_t end_of_lengths(const FillLimits& limits) noexcept;

// Throws std::invalid_argument if the edges do not strictly increase from at least 1, or are too
// many.
void check_edges(std::span<const std::uint64_t> inner_edges);

// Returns edges in which every `merge_buckets` adjacent buckets, from the shortest up, are one.
[[nodiscard]] std::vector<std::uint64_t> merge_edges(std::span<const std::uint64_t> inner_edges,
                                                     std::uint64_t merge_buckets);

// Maps a length to its class: bucket k for k < num_buckets, then three more for samples that are in
// no bucket. Bucket k holds edges[k] <= length < edges[k + 1], as numpy.digitize has it.
class Classes {
 public:
  // Throws as check_edges does. `num_samples` is how many will be looked up, roughly: the table of
  // the shortest lengths is not made larger than would repay. O(num_samples), and at most O(2^16).
  Classes(std::vector<std::uint64_t> inner_edges, const FillLimits& limits,
          const Admission& admission, std::size_t num_samples);

  [[nodiscard]] std::size_t num_buckets() const noexcept { return inner_edges_.size() + 1; }
  [[nodiscard]] std::size_t num_classes() const noexcept { return num_buckets() + 3; }
  [[nodiscard]] std::size_t alone() const noexcept { return num_buckets(); }
  [[nodiscard]] std::size_t too_long() const noexcept { return num_buckets() + 1; }
  [[nodiscard]] std::size_t empty() const noexcept { return num_buckets() + 2; }
  [[nodiscard]] const std::vector<std::uint64_t>& inner_edges() const noexcept {
    return inner_edges_;
  }

  // Returns the class of a sample. O(1) in the table, else O(log num_buckets). Thread-safe.
  [[nodiscard]] std::size_t operator()(std::uint64_t length) const noexcept {
    return length < table_.size() ? table_[static_cast<std::size_t>(length)] : search(length);
  }

  // Returns the classes of all lengths below table().size().
  [[nodiscard]] std::span<const std::uint16_t> table() const noexcept { return table_; }

  // Returns the bucket of a sample of this length, whether it is admitted or not.
  [[nodiscard]] std::size_t bucket_of(std::uint64_t length) const noexcept;

 private:
  [[nodiscard]] std::size_t search(std::uint64_t length) const noexcept;

  std::vector<std::uint64_t> inner_edges_;
  std::uint64_t admitted_end_;
  std::size_t too_long_class_;
  std::size_t empty_class_;
  std::vector<std::uint16_t> table_;
};

// Samples and tokens of one kind.
struct Amount {
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;  // Saturates at 2^64 - 1.
};

// What one pass over the lengths finds.
struct Survey {
  std::vector<Amount> classes;              // One a class of `Classes`.
  std::vector<std::uint64_t> part_samples;  // parts x classes: samples of a class in a part.
  std::uint64_t longest = 0;                // Of all samples that are in a bucket or alone.
  Amount admitted;                          // In a bucket or alone.
};

// Returns the first sample of part `part` when `samples` are cut into `num_parts` parts. Parts
// begin at multiples of 256, so that what is drawn for a block of samples does not depend on the
// cut.
[[nodiscard]] std::size_t part_begin(std::size_t samples, std::size_t part, std::size_t num_parts);

inline constexpr std::uint64_t kSurveyWork = 10;  // Of a sample, for a watch.

// Counts the samples of each class, in as many parts as the team has members.
//
// Throws std::invalid_argument for the first sample, in order, that is not in [0, end_of_lengths),
// too long where that is an error, or empty where that is one; and if no sample is admitted.
[[nodiscard]] Survey survey(const Lengths& lengths, const Classes& classes,
                            const FillLimits& limits, const Admission& admission, Team& team);

}  // namespace evenstride
