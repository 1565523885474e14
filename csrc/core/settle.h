// How many batches each bucket is to make, so that every rank has as many as the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace evenstride {

// What a bucket can be filled into.
struct BucketRange {
  std::uint64_t batches = 0;  // As it is filled naturally.
  std::uint64_t samples = 0;  // The most batches that it can make.
};

struct StepOptions {
  std::uint64_t num_replicas = 1;
  bool drop_last = false;
  std::optional<std::uint64_t> steps_per_epoch;  // The natural number where there is none.
};

// How many batches each bucket makes, and what that comes to.
struct Settlement {
  std::vector<std::uint64_t> batches;  // One a bucket, from the shortest.
  std::uint64_t steps = 0;
  std::uint64_t repeats = 0;  // Batches that are used once more, to fill the last step.
};

// Settles a natural fill: raises the batches of as few buckets as will do until they make whole
// steps. Nothing is repeated if a multiple of num_replicas lies between the number of batches and
// the number of samples; else fewer than num_replicas batches are. With drop_last nothing is raised
// or repeated, and fewer than num_replicas batches are over.
//
// A bucket that would have to more than double its batches hands the rest on to the next shorter
// one instead. O(buckets). Throws std::invalid_argument if drop_last leaves no step.
[[nodiscard]] Settlement settle(std::span<const BucketRange> buckets, const StepOptions& options);

// Settles on exactly `steps`: as `settle` does where it comes to that number, else spread over the
// buckets in proportion to their natural batches. `fewest` has the fewest batches that each bucket
// can make. With drop_last, fewer than num_replicas batches are over, and only if there cannot be
// fewer. O(buckets). Throws std::invalid_argument, naming both ends, if there cannot be as many or
// as few steps.
[[nodiscard]] Settlement settle_on(std::uint64_t steps, std::span<const BucketRange> buckets,
                                   std::span<const std::uint64_t> fewest,
                                   const StepOptions& options);

}  // namespace evenstride
