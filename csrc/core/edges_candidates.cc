#include "core/edges_candidates.h"

#include <algorithm>
#include <numeric>

namespace evenstride {
namespace {

__extension__ using Wide = unsigned __int128;

// Adds the cuts that divide the masses of all widths, mass_of(0), ..., into equal parts.
template <class MassOf>
void add_quantiles(std::size_t num_widths, std::size_t num_parts, const MassOf& mass_of,
                   std::vector<std::size_t>& cuts) {
  Wide all = 0;
  for (std::size_t i = 0; i < num_widths; ++i) {
    all += mass_of(i);
  }
  // A heavy width would swallow many quantiles, which the others need.
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): num_parts is at least 2.
  const Wide cap = all / num_parts + 1;
  Wide total = 0;
  for (std::size_t i = 0; i < num_widths; ++i) {
    total += std::min(mass_of(i), cap);
  }
  // Whole parts and the rest apart, because total * part can overflow.
  const auto quantile = [&](std::size_t part) {
    return total / num_parts * part + total % num_parts * part / num_parts;
  };
  Wide below = 0;
  Wide next = quantile(1);
  std::size_t part = 1;
  for (std::size_t i = 0; i < num_widths && part < num_parts; ++i) {
    const Wide mass = std::min(mass_of(i), cap);
    below += mass;
    if (next >= below) {
      continue;
    }
    cuts.push_back(i);
    if (mass > total / num_parts) {
      cuts.push_back(i + 1);
    }
    while (next < below && part < num_parts) {
      next = quantile(++part);
    }
  }
}

}  // namespace

std::vector<std::size_t> candidate_cuts(const WidthHistogram& histogram, std::size_t num_cuts) {
  const std::size_t num_widths = histogram.widths.size();
  if (num_widths <= num_cuts) {
    std::vector<std::size_t> cuts(num_widths + 1);
    std::iota(cuts.begin(), cuts.end(), std::size_t{0});
    return cuts;
  }
  const auto samples_of = [&](std::size_t i) -> Wide {
    return histogram.samples_below[i + 1] - histogram.samples_below[i];
  };
  const auto tokens_of = [&](std::size_t i) -> Wide { return samples_of(i) * histogram.widths[i]; };
  std::vector<std::size_t> cuts{0, num_widths};
  add_quantiles(num_widths, num_cuts / 2, samples_of, cuts);
  add_quantiles(num_widths, num_cuts / 2, tokens_of, cuts);
  std::ranges::sort(cuts);
  const auto repeated = std::ranges::unique(cuts);
  cuts.erase(repeated.begin(), repeated.end());
  return cuts;
}

}  // namespace evenstride
