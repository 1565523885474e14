#include "core/fingerprint.h"

#include <atomic>
#include <cstddef>

#include "core/buckets.h"
#include "core/random.h"

namespace evenstride {

std::uint64_t fingerprint(const Lengths& lengths, Team& team) {
  const auto num_parts = static_cast<std::size_t>(team.size());
  std::atomic<std::uint64_t> sum = 0;  // Sums wrap around, so the parts may end in any order.
  std::visit(
      [&](const auto& values) {
        team.for_each(num_parts, [&](std::size_t part, int) {
          std::uint64_t part_sum = 0;
          in_pieces(team.watch(), part_begin(values.size(), part, num_parts),
                    part_begin(values.size(), part + 1, num_parts),
                    [&](std::size_t begin, std::size_t end) {
                      for (std::size_t i = begin; i < end; ++i) {
                        part_sum +=
                            mix64(static_cast<std::uint64_t>(values[i]) + (i + 1) * kGoldenGamma);
                      }
                    });
          sum.fetch_add(part_sum, std::memory_order_relaxed);
        });
      },
      lengths);
  return mix64(sum + num_samples(lengths));
}

}  // namespace evenstride
