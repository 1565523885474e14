#include "core/buckets.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/labels.h"
#include "core/names.h"

namespace evenstride {
namespace {

constexpr std::size_t kMostTabled = std::size_t{1} << 16;
constexpr std::size_t kBlock = 256;

std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) {
  return a > kUnlimited - b ? kUnlimited : a + b;
}

std::string samples_removed(const Survey& found, const Classes& classes) {
  const Amount& too_long = found.classes[classes.too_long()];
  const Amount& empty = found.classes[classes.empty()];
  return std::to_string(too_long.samples) + " too long, " + std::to_string(empty.samples) +
         " empty";
}

// Throws for the first sample that is not allowed; the caller knows that there is one.
template <class T>
[[noreturn]] void throw_for_first(std::span<const T> lengths, const FillLimits& limits,
                                  const Admission& admission, const Watch& watch) {
  const std::uint64_t end = end_of_admitted(limits, admission.max_length);
  const std::uint64_t length_end = end_of_lengths(limits);
  StepCheck check(watch);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    check();
    const auto length = static_cast<std::uint64_t>(lengths[i]);
    if (length < std::min(end, length_end) && length != 0) {
      continue;
    }
    const std::string where = "`lengths[" + std::to_string(i) + "]` must be ";
    if (length >= length_end) {  // A negative length too, once it is unsigned.
      const std::string range =
          limits.pad_to_multiple_of == 1
              ? "in [0, 2**63)"
              : "in [0, " + std::to_string(length_end) +
                    ") for pad_to_multiple_of = " + std::to_string(limits.pad_to_multiple_of);
      throw std::invalid_argument(where + range + ", but is " + std::to_string(lengths[i]) + ".");
    }
    if (length == 0 && admission.empty == Empty::kError) {
      throw std::invalid_argument(
          where +
          "at least 1, but is 0; pass empty='keep' to count it as one token, "
          "or empty='drop' to leave it out.");
    }
    if (length >= end && admission.too_long == TooLong::kError) {
      const std::string bound = end - 1 == admission.max_length
                                    ? "max_length = " + std::to_string(admission.max_length)
                                    : std::to_string(end - 1);
      throw std::invalid_argument(where + "in [0, " + bound +
                                  "] for token_budget = " + std::to_string(limits.token_budget) +
                                  ", but is " + std::to_string(length) +
                                  "; pass too_long='drop' to leave such samples out, or "
                                  "too_long='alone' to give each a batch of its own.");
    }
  }
  throw std::logic_error("no length breaks a rule");
}

struct Counts {
  std::vector<Amount> classes;
  std::uint64_t longest = 0;  // Of admitted samples.
  bool out_of_range = false;
};

// Counts samples and tokens of short samples in one 64-bit number each: one addition a sample.
class PackedCounters {
 public:
  static constexpr std::size_t kMostSamples = std::size_t{1}
                                              << 16;  // Between two calls of `flush`.

  explicit PackedCounters(const Classes& classes)
      : table_(classes.table()), counters_(classes.num_classes() * kLanes) {}

  // Returns the class of the sample. Precondition: length < table().size().
  std::size_t add(std::uint64_t length, std::size_t lane) {
    const std::size_t label = table_[static_cast<std::size_t>(length)];
    counters_[label * kLanes + lane % kLanes] += (std::uint64_t{1} << kTokenBits) + length;
    return label;
  }

  void flush(std::vector<Amount>& to) {
    for (std::size_t i = 0; i < counters_.size(); ++i) {
      Amount& amount = to[i / kLanes];
      amount.samples += counters_[i] >> kTokenBits;
      amount.tokens = add_saturating(amount.tokens, counters_[i] & kTokenMask);
      counters_[i] = 0;
    }
  }

 private:
  static constexpr std::size_t kLanes = 4;  // One counter alone would wait for its own last store.
  static constexpr int kTokenBits = 40;
  static constexpr std::uint64_t kTokenMask = (std::uint64_t{1} << kTokenBits) - 1;

  std::span<const std::uint16_t> table_;
  std::vector<std::uint64_t> counters_;
};

template <class T>
Counts count_part(std::span<const T> lengths, const Classes& classes, std::uint64_t length_end,
                  Watch& watch) {
  Counts counts;
  counts.classes.resize(classes.num_classes());
  PackedCounters short_samples(classes);
  for (std::size_t begin = 0; begin < lengths.size(); begin += PackedCounters::kMostSamples) {
    watch.check();
    const std::size_t end = std::min(lengths.size(), begin + PackedCounters::kMostSamples);
    std::uint64_t longest = counts.longest;
    for (std::size_t i = begin; i < end; ++i) {
      const auto length = static_cast<std::uint64_t>(lengths[i]);
      std::size_t label = 0;
      if (length < classes.table().size()) {
        label = short_samples.add(length, i);
      } else if (length < length_end) {
        label = classes(length);
        counts.classes[label].samples += 1;
        counts.classes[label].tokens = add_saturating(counts.classes[label].tokens, length);
      } else {
        counts.out_of_range = true;
        return counts;
      }
      longest = std::max(longest, label <= classes.alone() ? length : 0);
    }
    counts.longest = longest;
    short_samples.flush(counts.classes);
    watch.advance(kSurveyWork * (end - begin));
  }
  return counts;
}

}  // namespace

TooLong parse_too_long(std::string_view name) {
  static constexpr Named<TooLong> kNames[] = {
      {"error", TooLong::kError}, {"drop", TooLong::kDrop}, {"alone", TooLong::kAlone}};
  return parse_name("too_long", kNames, name);
}

Empty parse_empty(std::string_view name) {
  static constexpr Named<Empty> kNames[] = {
      {"keep", Empty::kKeep}, {"drop", Empty::kDrop}, {"error", Empty::kError}};
  return parse_name("empty", kNames, name);
}

std::uint64_t end_of_admitted(const FillLimits& limits, std::uint64_t max_length) noexcept {
  const std::uint64_t widest =
      limits.token_budget / limits.pad_to_multiple_of * limits.pad_to_multiple_of;
  return std::min(widest, max_length) + 1;
}

void check_edges(std::span<const std::uint64_t> inner_edges) {
  if (inner_edges.size() >= kMostBuckets) {
    throw std::invalid_argument("`buckets` must be at most " + std::to_string(kMostBuckets) +
                                ", but are " + std::to_string(inner_edges.size() + 1) + ".");
  }
  for (std::size_t i = 0; i < inner_edges.size(); ++i) {
    const std::uint64_t least = i == 0 ? 1 : inner_edges[i - 1] + 1;
    if (inner_edges[i] < least) {
      throw std::invalid_argument("`buckets[" + std::to_string(i) + "]` must be at least " +
                                  std::to_string(least) +
                                  ", for edges to strictly increase from above 0, but is " +
                                  std::to_string(inner_edges[i]) + ".");
    }
  }
}

std::uint64_t end_of_lengths(const FillLimits& limits) noexcept {
  constexpr std::uint64_t kWidest = (std::uint64_t{1} << 63) - 1;
  return kWidest / limits.pad_to_multiple_of * limits.pad_to_multiple_of + 1;
}

std::vector<std::uint64_t> merge_edges(std::span<const std::uint64_t> inner_edges,
                                       std::uint64_t merge_buckets) {
  std::vector<std::uint64_t> merged;
  for (std::size_t i = 0; inner_edges.size() - i >= merge_buckets;) {
    i += static_cast<std::size_t>(merge_buckets);
    merged.push_back(inner_edges[i - 1]);
  }
  return merged;
}

Classes::Classes(std::vector<std::uint64_t> inner_edges, const FillLimits& limits,
                 const Admission& admission, std::size_t num_samples)
    : inner_edges_(std::move(inner_edges)),
      admitted_end_(end_of_admitted(limits, admission.max_length)),
      too_long_class_(admission.too_long == TooLong::kAlone ? alone() : too_long()),
      empty_class_(admission.empty == Empty::kKeep ? 0 : empty()),
      table_(std::clamp<std::size_t>(num_samples, 1, kMostTabled)) {
  check_edges(inner_edges_);
  const auto in_table = [&](std::uint64_t end) {
    return static_cast<std::size_t>(std::min<std::uint64_t>(table_.size(), end));
  };
  // Writes runs rather than looking up each length: 64 buckets would cost more than small plans.
  const std::span<std::uint16_t> table(table_);
  std::size_t begin = 0;
  for (std::size_t bucket = 0; bucket < num_buckets(); ++bucket) {
    const std::size_t end =
        bucket < inner_edges_.size() ? in_table(inner_edges_[bucket]) : table.size();
    std::ranges::fill(table.subspan(begin, end - begin), static_cast<std::uint16_t>(bucket));
    begin = end;
  }
  std::ranges::fill(table.subspan(in_table(admitted_end_)),
                    static_cast<std::uint16_t>(too_long_class_));
  table_[0] = static_cast<std::uint16_t>(search(0));
}

std::size_t Classes::bucket_of(std::uint64_t length) const noexcept {
  return static_cast<std::size_t>(std::ranges::upper_bound(inner_edges_, length) -
                                  inner_edges_.begin());
}

std::size_t Classes::search(std::uint64_t length) const noexcept {
  if (length == 0 && empty_class_ != 0) {
    return empty_class_;
  }
  return length >= admitted_end_ ? too_long_class_ : bucket_of(length);
}

std::size_t part_begin(std::size_t samples, std::size_t part, std::size_t num_parts) {
  const std::size_t blocks = (samples + kBlock - 1) / kBlock;
  return std::min(samples, blocks * part / num_parts * kBlock);
}

Survey survey(const Lengths& lengths, const Classes& classes, const FillLimits& limits,
              const Admission& admission, Team& team) {
  const auto num_parts = static_cast<std::size_t>(team.size());
  std::vector<Counts> parts(num_parts);
  std::visit(
      [&](const auto& values) {
        if (values.empty()) {
          throw std::invalid_argument("`lengths` must have at least 1 sample, but has 0 samples.");
        }
        team.for_each(num_parts, [&](std::size_t part, int) {
          const std::size_t begin = part_begin(values.size(), part, num_parts);
          const std::size_t end = part_begin(values.size(), part + 1, num_parts);
          parts[part] = count_part(values.subspan(begin, end - begin), classes,
                                   end_of_lengths(limits), team.watch());
        });
        const bool bad = std::any_of(parts.begin(), parts.end(), [&](const Counts& part) {
          return part.out_of_range ||
                 (admission.too_long == TooLong::kError &&
                  part.classes[classes.too_long()].samples > 0) ||
                 (admission.empty == Empty::kError && part.classes[classes.empty()].samples > 0);
        });
        if (bad) {
          throw_for_first(values, limits, admission, team.watch());
        }
      },
      lengths);
  Survey found;
  found.classes.resize(classes.num_classes());
  for (const Counts& part : parts) {
    found.longest = std::max(found.longest, part.longest);
    for (std::size_t label = 0; label < classes.num_classes(); ++label) {
      found.classes[label].samples += part.classes[label].samples;
      found.classes[label].tokens =
          add_saturating(found.classes[label].tokens, part.classes[label].tokens);
      found.part_samples.push_back(part.classes[label].samples);
    }
  }
  for (std::size_t label = 0; label <= classes.alone(); ++label) {
    found.admitted.samples += found.classes[label].samples;
    found.admitted.tokens = add_saturating(found.admitted.tokens, found.classes[label].tokens);
  }
  if (found.admitted.samples == 0) {
    throw std::invalid_argument(
        "`lengths` must leave at least 1 sample, but 0 samples are left of " +
        std::to_string(num_samples(lengths)) + " (" + samples_removed(found, classes) + ").");
  }
  return found;
}

}  // namespace evenstride
