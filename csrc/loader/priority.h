// The priority of threads whose work can wait.
#pragma once

namespace evenstride {

// Gives the calling thread, and those that it starts from now on, the lowest priority where a
// thread can have one of its own, which is on Linux. It cannot be raised again without privileges.
void take_lowest_priority() noexcept;

}  // namespace evenstride
