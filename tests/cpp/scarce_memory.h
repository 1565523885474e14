// Memory that can be made scarce, in a program that has scarce_memory.cc.
#pragma once

#include <cstddef>
#include <optional>

namespace evenstride::testing {

// How often this thread can still allocate with `new`, if that is limited.
extern thread_local std::optional<std::size_t> num_allocations_left;

}  // namespace evenstride::testing
