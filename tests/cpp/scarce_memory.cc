#include "scarce_memory.h"

#include <cstdlib>
#include <new>

namespace evenstride::testing {

thread_local std::optional<std::size_t> num_allocations_left;

}  // namespace evenstride::testing

// NOLINTBEGIN(cppcoreguidelines-no-malloc): There is nothing else to take it from.
void* operator new(std::size_t bytes) {
  std::optional<std::size_t>& left = evenstride::testing::num_allocations_left;
  if (left && (*left)-- == 0) {
    left.reset();
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc)
