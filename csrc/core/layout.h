// The arrays of a plan, from its steps and the order in which they come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/epoch_plan.h"
#include "core/memory.h"
#include "core/steps.h"
#include "core/threads.h"

namespace evenstride {

inline constexpr std::uint64_t kLayOutWork = 20;  // Of a sample, for a watch.

// Copies the batches of the steps to where they belong: step sequence[t] is the t-th. Takes 4 bytes
// a batch beside the plan, once the steps and the sequence are given back.
template <class Entry>
[[nodiscard]] EpochPlan lay_out(Steps<Entry> steps, LargeVector<std::uint32_t> sequence,
                                std::size_t num_replicas, std::uint64_t pad_to_multiple_of,
                                Team& team);

}  // namespace evenstride
