#include "core/edges.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/checks.h"
#include "core/edges_candidates.h"
#include "core/edges_cost.h"

namespace evenstride {
namespace {

constexpr std::uint64_t kMinCuts = 160;
constexpr std::uint64_t kCutsABucket = 5;
constexpr std::uint64_t kMaxCuts = 2048;

// Enough draws that noise decides little; more of them where the pairs of cuts are few.
constexpr std::size_t kFewCuts = 256;
constexpr std::size_t kDrawsForFewCuts = 1024;
constexpr std::size_t kDraws = 512;

constexpr std::uint64_t kUnreachable = std::numeric_limits<std::uint64_t>::max() / 2;
constexpr std::uint32_t kNoCut = std::numeric_limits<std::uint32_t>::max();

// Returns an upper bound on the padding, last batches included, of the best choice of at most
// `num_buckets` buckets: the least that equally many cuts a bucket make, for a few numbers of
// buckets.
std::uint64_t padding_bound(const std::vector<std::size_t>& cuts, const BucketCosts& costs,
                            std::size_t num_buckets) {
  const std::size_t num_cuts = cuts.size() - 1;
  std::uint64_t bound = kUnreachable;
  for (; num_buckets > 0; num_buckets /= 2) {
    std::uint64_t cost = 0;
    for (std::size_t bucket = 0; bucket < num_buckets; ++bucket) {
      cost +=
          costs(cuts[bucket * num_cuts / num_buckets], cuts[(bucket + 1) * num_cuts / num_buckets]);
    }
    bound = std::min(bound, cost);
  }
  const std::uint64_t unpadded = costs.without_padding(0, cuts[num_cuts]);
  return bound > unpadded ? bound - unpadded : 0;
}

// The costs of the buckets between any two cuts.
class CostTable {
 public:
  // Buckets that pad more than this are left out, with all wider ones.
  CostTable(const std::vector<std::size_t>& cuts, const BucketCosts& costs,
            std::uint64_t max_padding, Team& team)
      : costs_(cuts.size() * (cuts.size() - 1) / 2, kUnreachable) {
    team.for_each(cuts.size() - 1, [&](std::size_t task, int) {
      const std::size_t last = cuts.size() - 1 - task;  // The longest tasks first.
      std::uint64_t* const row = costs_.data() + last * (last - 1) / 2;
      std::uint64_t least = 0;
      for (std::size_t first = last; first-- > 0;) {
        // The whole costs as much as its part, even where the draws of both say otherwise.
        least = std::max(least, costs(cuts[first], cuts[last]));
        row[first] = least;
        const std::uint64_t unpadded = costs.without_padding(cuts[first], cuts[last]);
        if (least > unpadded && least - unpadded > max_padding) {
          break;
        }
      }
    });
  }

  // Returns the costs of the buckets that end at this cut, by the cut where they begin: they fall.
  [[nodiscard]] const std::uint64_t* ending_at(std::size_t last) const {
    return costs_.data() + last * (last - 1) / 2;
  }

 private:
  std::vector<std::uint64_t> costs_;
};

// Returns which of the cuts 1, ..., num_cuts - 1 bound the cheapest choice of at most `num_buckets`
// buckets from cut 0 to cut num_cuts; among equals, one of the fewest buckets.
std::vector<std::size_t> cheapest_cuts(const CostTable& table, std::size_t num_cuts,
                                       std::size_t num_buckets, const Watch& watch) {
  std::vector<std::uint64_t> best(num_cuts + 1, kUnreachable);
  best[0] = 0;
  // begins[k][c]: where the last of at most k + 1 buckets up to cut c begins; none if k do as well.
  std::vector<std::vector<std::uint32_t>> begins;
  for (bool better = true; better && begins.size() < num_buckets;) {
    better = false;
    std::vector<std::uint64_t> next = best;
    std::vector<std::uint32_t>& begin = begins.emplace_back(num_cuts + 1, kNoCut);
    for (std::size_t last = 1; last <= num_cuts; ++last) {
      watch.check();
      const std::uint64_t* const costs = table.ending_at(last);
      for (std::size_t first = last; first-- > 0 && costs[first] < next[last];) {
        if (best[first] + costs[first] < next[last]) {
          next[last] = best[first] + costs[first];
          begin[last] = static_cast<std::uint32_t>(first);
          better = true;
        }
      }
    }
    best.swap(next);
  }
  std::vector<std::size_t> cuts;
  std::size_t last = num_cuts;
  for (std::size_t k = begins.size(); k-- > 0;) {
    if (begins[k][last] != kNoCut) {
      last = begins[k][last];
      if (last == 0) {
        break;
      }
      cuts.push_back(last);
    }
  }
  std::ranges::reverse(cuts);
  return cuts;
}

}  // namespace

std::vector<std::uint64_t> optimal_edges(const LengthHistogram& histogram,
                                         std::uint64_t num_buckets, const FillLimits& limits,
                                         Team& team) {
  if (num_buckets < 1) {
    throw std::invalid_argument("`num_buckets` must be at least 1, but is 0.");
  }
  if (histogram.lengths.empty()) {
    throw std::invalid_argument("`lengths` must have at least 1 sample, but has 0.");
  }
  check_limits(limits);
  const WidthHistogram widths = width_histogram(histogram, limits.pad_to_multiple_of);
  const std::vector<std::size_t> cuts = candidate_cuts(
      widths, std::clamp(std::min(num_buckets, kMaxCuts) * kCutsABucket, kMinCuts, kMaxCuts));
  const std::size_t num_cuts = cuts.size() - 1;
  const BucketCosts costs(widths, limits, num_cuts <= kFewCuts ? kDrawsForFewCuts : kDraws);
  const auto most_buckets =
      static_cast<std::size_t>(std::min<std::uint64_t>(num_buckets, num_cuts));
  // Twice the bound, because draws are noisy and a wider bucket may save a half-full batch.
  const std::uint64_t max_padding = 2 * padding_bound(cuts, costs, most_buckets);
  const CostTable table(cuts, costs, max_padding, team);

  std::vector<std::uint64_t> edges;
  for (const std::size_t cut : cheapest_cuts(table, num_cuts, most_buckets, team.watch())) {
    // The shortest length of that width, whether or not a sample has it.
    edges.push_back(widths.widths[cuts[cut]] - limits.pad_to_multiple_of + 1);
  }
  return edges;
}

}  // namespace evenstride
