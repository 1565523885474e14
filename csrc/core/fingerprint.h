// A number that tells sets of lengths apart.
#pragma once

#include <cstdint>

#include "core/lengths.h"
#include "core/threads.h"

namespace evenstride {

// Returns a hash of the lengths and their order: the same for every integer type, platform and
// number of threads. One changed length, or two that trade places, change it but for one chance in
// 2^64. Meant against mistakes, not against forgery. O(samples).
[[nodiscard]] std::uint64_t fingerprint(const Lengths& lengths, Team& team);

}  // namespace evenstride
