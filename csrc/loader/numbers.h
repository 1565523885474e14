// The numbers of the batches of a pass: which is next, and which have been taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace evenstride {

// Counts the batches 0, 1, ..., num_batches - 1 of a pass, of which a loaded state may have taken
// some before. The place of a batch is its number among those that were not taken before.
class BatchNumbers {
 public:
  // Throws std::invalid_argument if `taken` holds a batch twice, or one outside [0, num_batches).
  BatchNumbers(std::uint64_t num_batches, std::vector<std::uint64_t> taken);

  [[nodiscard]] std::uint64_t num_places() const noexcept { return num_places_; }
  [[nodiscard]] std::uint64_t next_batch() const noexcept { return next_batch_; }
  [[nodiscard]] std::uint64_t next_place() const noexcept { return next_place_; }
  // Returns the next batch, and goes on to the one after it. Precondition: next_place() <
  // num_places(). Takes O(1) time, amortized.
  std::uint64_t claim();

  // Returns the place of a batch that was claimed. Takes O(log(taken before)) time.
  [[nodiscard]] std::uint64_t place_of(std::uint64_t batch) const;

  // Adds a batch that was claimed to those taken. Takes O(log(later())) time, amortized.
  void add_taken(std::uint64_t batch);

  // Takes a batch out of those taken. Takes O(log(later())) time, and for each batch after it that
  // is below first().
  void remove_taken(std::uint64_t batch);

  // The first batch that is not taken.
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  // The batches beyond it that are taken.
  [[nodiscard]] const std::set<std::uint64_t>& later() const noexcept { return later_; }
  [[nodiscard]] std::uint64_t num_taken() const noexcept { return num_taken_; }

 private:
  void skip_taken();

  std::vector<std::uint64_t> taken_before_;  // Rising.
  std::uint64_t num_places_;
  std::uint64_t next_batch_ = 0;
  std::uint64_t next_place_ = 0;
  std::size_t num_skipped_ = 0;  // Entries of taken_before_ below next_batch_.
  std::uint64_t first_ = 0;
  std::set<std::uint64_t> later_;
  std::uint64_t num_taken_ = 0;
};

}  // namespace evenstride
