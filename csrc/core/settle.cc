#include "core/settle.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace evenstride {
namespace {

std::uint64_t total(std::span<const std::uint64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

// Returns how far `value` is below the next multiple.
std::uint64_t short_of_multiple(std::uint64_t value, std::uint64_t multiple) {
  return (multiple - value % multiple) % multiple;
}

// Raises batches by `missing` in all, from the shortest bucket on: to double at most, and only
// then as far as the samples go. Returns whether that was possible.
bool raise(std::uint64_t missing, std::span<const BucketRange> buckets,
           std::vector<std::uint64_t>& batches) {
  for (const bool is_last_resort : {false, true}) {
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      std::uint64_t room = buckets[k].samples - batches[k];
      if (!is_last_resort) {
        room = std::min(room, batches[k]);
      }
      const std::uint64_t raised = std::min(missing, room);
      batches[k] += raised;
      missing -= raised;
    }
  }
  return missing == 0;
}

// Completes each bucket that can be, from the longest on, and hands the others' rest on. Returns
// how many batches the last step lacks.
std::uint64_t complete_buckets(std::span<const BucketRange> buckets, std::uint64_t num_replicas,
                               std::vector<std::uint64_t>& batches) {
  std::uint64_t carried = 0;
  for (std::size_t k = buckets.size(); k-- > 0;) {
    const std::uint64_t extra = short_of_multiple(carried + batches[k], num_replicas);
    if (extra <= batches[k] && extra <= buckets[k].samples - batches[k]) {
      batches[k] += extra;
      carried = 0;
    } else {
      carried = (carried + batches[k]) % num_replicas;
    }
  }
  return short_of_multiple(carried, num_replicas);
}

// Spreads `difference` units over the buckets in proportion to the room that each has for them.
// Returns what found no room.
std::uint64_t spread(std::uint64_t difference, std::uint64_t unit, bool is_raise,
                     std::span<const std::uint64_t> rooms, std::vector<std::uint64_t>& batches) {
  std::vector<std::uint64_t> units;
  for (const std::uint64_t room : rooms) {
    units.push_back(room / unit);
  }
  const std::uint64_t available = total(units);
  const std::uint64_t wanted = std::min(difference / unit, available);
  if (wanted == 0) {
    return difference;
  }
  __extension__ using Wide = unsigned __int128;
  std::uint64_t given = 0;
  std::uint64_t room_before = 0;
  for (std::size_t k = 0; k < units.size(); ++k) {
    // Differences of rounded prefixes, so that the sum is exact.
    room_before += units[k];
    const auto given_now = static_cast<std::uint64_t>(Wide{wanted} * room_before / available);
    const std::uint64_t amount = (given_now - given) * unit;
    batches[k] = is_raise ? batches[k] + amount : batches[k] - amount;
    given = given_now;
  }
  return difference - wanted * unit;
}

}  // namespace

Settlement settle(std::span<const BucketRange> buckets, const StepOptions& options) {
  const std::uint64_t num_replicas = options.num_replicas;
  std::vector<std::uint64_t> natural;
  std::uint64_t samples = 0;
  for (const BucketRange& bucket : buckets) {
    natural.push_back(bucket.batches);
    samples += bucket.samples;
  }
  const std::uint64_t num_batches = total(natural);
  if (options.drop_last) {
    if (num_batches < num_replicas) {
      throw std::invalid_argument(
          "`drop_last` must leave at least 1 step, but leaves 0: there are " +
          std::to_string(num_batches) +
          " batches for num_replicas = " + std::to_string(num_replicas) + ".");
    }
    return {.batches = std::move(natural), .steps = num_batches / num_replicas, .repeats = 0};
  }
  std::vector<std::uint64_t> batches = natural;
  const std::uint64_t missing = complete_buckets(buckets, num_replicas, batches);
  if (!raise(missing, buckets, batches)) {
    // The buckets that were completed may have used what the last step now lacks.
    batches = std::move(natural);
    if (!raise(short_of_multiple(num_batches, num_replicas), buckets, batches)) {
      return {.batches = batches,
              .steps = (num_batches + num_replicas - 1) / num_replicas,
              .repeats = short_of_multiple(samples, num_replicas)};
    }
  }
  return {.batches = batches, .steps = total(batches) / num_replicas, .repeats = 0};
}

Settlement settle_on(std::uint64_t steps, std::span<const BucketRange> buckets,
                     std::span<const std::uint64_t> fewest, const StepOptions& options) {
  const std::uint64_t num_replicas = options.num_replicas;
  std::uint64_t samples = 0;
  std::uint64_t natural = 0;
  for (const BucketRange& bucket : buckets) {
    samples += bucket.samples;
    natural += bucket.batches;
  }
  std::uint64_t natural_steps = 0;
  if (!options.drop_last) {
    // That number is always possible, if need be with repeats.
    Settlement natural_settlement = settle(buckets, options);
    natural_steps = natural_settlement.steps;
    if (steps == natural_steps) {
      return natural_settlement;
    }
  }
  const std::uint64_t fewest_batches = total(fewest);
  const std::uint64_t most_whole = samples / num_replicas;
  // What is over is dropped, or made a step: by smaller batches, or by repeats where there are
  // none.
  const std::uint64_t least = options.drop_last
                                  ? std::max<std::uint64_t>(1, fewest_batches / num_replicas)
                                  : (fewest_batches + num_replicas - 1) / num_replicas;
  const std::uint64_t most =
      options.drop_last ? most_whole : std::max({least, most_whole, natural_steps});
  if (most == 0) {
    throw std::invalid_argument("`drop_last` must leave at least 1 step, but leaves 0: there are " +
                                std::to_string(samples) + " samples for num_replicas = " +
                                std::to_string(num_replicas) + ".");
  }
  if (steps < least || steps > most) {
    throw std::invalid_argument("`steps_per_epoch` must be in [" + std::to_string(least) + ", " +
                                std::to_string(most) + "], but is " + std::to_string(steps) + ".");
  }
  Settlement settlement;
  settlement.steps = steps;
  if (steps > most_whole) {
    for (const BucketRange& bucket : buckets) {
      settlement.batches.push_back(bucket.samples);
    }
    settlement.repeats = steps * num_replicas - samples;
    return settlement;
  }
  const std::uint64_t wanted = std::max(fewest_batches, steps * num_replicas);
  __extension__ using Wide = unsigned __int128;
  for (std::size_t k = 0; k < buckets.size(); ++k) {
    const auto share = static_cast<std::uint64_t>(Wide{buckets[k].batches} * wanted / natural);
    const std::uint64_t whole = (share + num_replicas / 2) / num_replicas * num_replicas;
    settlement.batches.push_back(std::clamp(whole, fewest[k], buckets[k].samples));
  }
  const std::uint64_t made = total(settlement.batches);
  const bool is_raise = made < wanted;
  std::uint64_t difference = is_raise ? wanted - made : made - wanted;
  for (const std::uint64_t unit : {num_replicas, std::uint64_t{1}}) {
    std::vector<std::uint64_t> rooms;
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      rooms.push_back(is_raise ? buckets[k].samples - settlement.batches[k]
                               : settlement.batches[k] - fewest[k]);
    }
    difference = spread(difference, unit, is_raise, rooms, settlement.batches);
  }
  return settlement;
}

}  // namespace evenstride
