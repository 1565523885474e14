#include "core/histogram.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace evenstride {
namespace {

constexpr std::uint64_t kUnionWork = 2;
constexpr std::uint64_t kCountWork = kHistogramWork - kUnionWork;

constexpr std::uint64_t kNotALength = std::uint64_t{1} << 63;

// Equal lengths in a row would each wait for the last one's counter to be stored: neighbours count
// in different lanes. Large tables have one lane, for they miss the cache anyway.
constexpr std::size_t kLanes = 4;
constexpr int kMaxTableBitsWithLanes = 16;
constexpr int kMinTableBits = 10;
constexpr int kMaxTableBits = 22;

// Below this many samples a part, waking a thread costs more than it saves.
constexpr std::size_t kMinSamplesAPart = 1 << 15;

// What one part of the samples holds: lengths below the table's size are counted there.
template <class Count>
struct Part {
  std::vector<Count> table;
  LengthHistogram longer;
};

// Signed lengths are extended, so that a negative one is no length either.
template <class Length>
std::uint64_t as_uint64(Length length) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(length));
}

template <>
std::uint64_t as_uint64(std::uint64_t length) {
  return length;
}

template <class Length>
[[noreturn]] void throw_first_outside(std::span<const Length> lengths) {
  const auto first = std::find_if(lengths.begin(), lengths.end(),
                                  [](Length length) { return as_uint64(length) >= kNotALength; });
  throw std::invalid_argument("`lengths[" + std::to_string(first - lengths.begin()) +
                              "]` must be in [0, 2**63), but is " + std::to_string(*first) + ".");
}

template <class Length>
std::span<const Length> part_of(std::span<const Length> lengths, std::size_t part,
                                std::size_t num_parts) {
  const std::size_t size = lengths.size() / num_parts;
  const std::size_t rest = lengths.size() % num_parts;
  return lengths.subspan(part * size + std::min(part, rest), size + (part < rest ? 1 : 0));
}

// Returns the union of the bits of all lengths: cheaper than their maximum, and as good a bound.
template <class Length>
std::uint64_t union_of_bits(std::span<const Length> lengths, std::size_t num_parts, Team& team) {
  std::vector<std::uint64_t> unions(num_parts);
  team.for_each(num_parts, [&](std::size_t part, int) {
    const std::span<const Length> all = part_of(lengths, part, num_parts);
    in_counted_pieces(team.watch(), 0, all.size(), kUnionWork,
                      [&](std::size_t begin, std::size_t end) {
                        std::uint64_t bits = 0;
                        for (const Length length : all.subspan(begin, end - begin)) {
                          bits |= as_uint64(length);
                        }
                        unions[part] |= bits;
                      });
  });
  return std::reduce(unions.begin(), unions.end(), std::uint64_t{0}, std::bit_or<>());
}

LengthHistogram histogram_by_sorting(std::vector<std::uint64_t> lengths, const Watch& watch) {
  StepCheck check(watch);
  std::ranges::sort(lengths, [&](std::uint64_t a, std::uint64_t b) {
    check();
    return a < b;
  });
  LengthHistogram histogram;
  for (auto it = lengths.begin(); it != lengths.end();) {
    const auto end = std::find_if(it, lengths.end(), [&](auto length) { return length != *it; });
    histogram.lengths.push_back(*it);
    histogram.counts.push_back(static_cast<std::uint64_t>(end - it));
    it = end;
  }
  return histogram;
}

LengthHistogram merged(const LengthHistogram& a, const LengthHistogram& b) {
  LengthHistogram result;
  const std::size_t capacity = a.lengths.size() + b.lengths.size();
  result.lengths.reserve(capacity);
  result.counts.reserve(capacity);
  for (std::size_t i = 0, j = 0; i < a.lengths.size() || j < b.lengths.size();) {
    const bool from_a =
        j == b.lengths.size() || (i < a.lengths.size() && a.lengths[i] <= b.lengths[j]);
    const bool from_b =
        i == a.lengths.size() || (j < b.lengths.size() && b.lengths[j] <= a.lengths[i]);
    result.lengths.push_back(from_a ? a.lengths[i] : b.lengths[j]);
    result.counts.push_back((from_a ? a.counts[i] : 0) + (from_b ? b.counts[j] : 0));
    i += from_a ? 1 : 0;
    j += from_b ? 1 : 0;
  }
  return result;
}

template <std::size_t lanes, class Count, class Length>
Part<Count> count(std::span<const Length> lengths, int table_bits, Watch& watch) {
  Part<Count> part{.table = std::vector<Count>(lanes << table_bits), .longer = {}};
  std::vector<std::uint64_t> longer;
  Count* const table = part.table.data();
  const auto count_one = [&](Length length, std::size_t lane) {
    const std::uint64_t value = as_uint64(length);
    if ((value >> table_bits) == 0) [[likely]] {
      ++table[value * lanes + lane];
    } else {
      longer.push_back(value);
    }
  };
  in_counted_pieces(watch, 0, lengths.size(), kCountWork, [&](std::size_t i, std::size_t end) {
    for (; i + lanes <= end; i += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        count_one(lengths[i + lane], lane);
      }
    }
    for (; i < end; ++i) {
      count_one(lengths[i], 0);
    }
  });
  part.longer = histogram_by_sorting(std::move(longer), watch);
  return part;
}

template <class Count>
LengthHistogram joined(std::vector<Part<Count>>& parts, std::size_t lanes, int table_bits) {
  LengthHistogram longer = std::move(parts[0].longer);
  for (std::size_t part = 1; part < parts.size(); ++part) {
    longer = merged(longer, parts[part].longer);
  }
  LengthHistogram result;
  for (std::size_t length = 0; length < std::size_t{1} << table_bits; ++length) {
    std::uint64_t count = 0;
    for (const Part<Count>& part : parts) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        count += part.table[length * lanes + lane];
      }
    }
    if (count != 0) {
      result.lengths.push_back(length);
      result.counts.push_back(count);
    }
  }
  result.lengths.insert(result.lengths.end(), longer.lengths.begin(), longer.lengths.end());
  result.counts.insert(result.counts.end(), longer.counts.begin(), longer.counts.end());
  return result;
}

template <std::size_t lanes, class Count, class Length>
LengthHistogram histogram_of(std::span<const Length> lengths, int table_bits, std::size_t num_parts,
                             Team& team) {
  std::vector<Part<Count>> parts(num_parts);
  team.for_each(num_parts, [&](std::size_t part, int) {
    parts[part] = count<lanes, Count>(part_of(lengths, part, num_parts), table_bits, team.watch());
  });
  return joined(parts, lanes, table_bits);
}

template <class Length>
LengthHistogram histogram_of(std::span<const Length> lengths, Team& team) {
  const auto at_most_a_part_a_member = [&](std::size_t num_parts) {
    return std::clamp<std::size_t>(num_parts, 1, static_cast<std::size_t>(team.size()));
  };
  std::size_t num_parts = at_most_a_part_a_member(lengths.size() / kMinSamplesAPart);
  const std::uint64_t bits = union_of_bits(lengths, num_parts, team);
  if (bits >= kNotALength) {
    throw_first_outside(lengths);
  }
  // A table much larger than the number of samples would take longer to clear than to fill.
  const int useful_bits = static_cast<int>(std::bit_width(lengths.size()));
  const int table_bits = std::min(static_cast<int>(std::bit_width(bits)),
                                  std::clamp(useful_bits, kMinTableBits, kMaxTableBits));
  num_parts = std::min(num_parts, at_most_a_part_a_member(4 * lengths.size() >> table_bits));
  const bool narrow = lengths.size() <= std::numeric_limits<std::uint32_t>::max();
  if (table_bits > kMaxTableBitsWithLanes) {
    return narrow ? histogram_of<1, std::uint32_t>(lengths, table_bits, num_parts, team)
                  : histogram_of<1, std::uint64_t>(lengths, table_bits, num_parts, team);
  }
  return narrow ? histogram_of<kLanes, std::uint32_t>(lengths, table_bits, num_parts, team)
                : histogram_of<kLanes, std::uint64_t>(lengths, table_bits, num_parts, team);
}

}  // namespace

std::uint64_t num_samples(const LengthHistogram& histogram) {
  return std::reduce(histogram.counts.begin(), histogram.counts.end(), std::uint64_t{0});
}

LengthHistogram length_histogram(const Lengths& lengths, Team& team) {
  return std::visit([&](const auto& values) { return histogram_of(values, team); }, lengths);
}

}  // namespace evenstride
