// Large blocks of memory: advice to the system about them, and giving them back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace evenstride {

// Asks for huge pages under the whole ones of [memory, memory + bytes), where the system has them:
// random access then waits for fewer page tables, and first touches for fewer faults.
inline void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef __linux__
  constexpr std::uintptr_t kHuge = std::uintptr_t{1} << 21;
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + kHuge - 1) / kHuge * kHuge;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kHuge * kHuge;
  if (begin < end) {
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#endif
}

// Takes large blocks from the system and gives them straight back to it: what malloc keeps for
// later would still be there when the result of a plan is made.
template <class T>
class PageAllocator {
 public:
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard's name.

  PageAllocator() = default;
  template <class U>
  // NOLINTNEXTLINE(*-explicit-constructor): as the standard asks of an allocator.
  PageAllocator(const PageAllocator<U>& /*other*/) {}

  [[nodiscard]] T* allocate(std::size_t size) {
    if (!is_large(size)) {
      return std::allocator<T>().allocate(size);
    }
#ifdef __linux__
    void* const memory =
        mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    advise_huge_pages(memory, size * sizeof(T));
    return static_cast<T*>(memory);
#endif
  }
  void deallocate(T* memory, std::size_t size) noexcept {
    if (!is_large(size)) {
      std::allocator<T>().deallocate(memory, size);
      return;
    }
#ifdef __linux__
    (void)munmap(memory, size * sizeof(T));
#endif
  }

  friend bool operator==(const PageAllocator& /*a*/, const PageAllocator& /*b*/) { return true; }

 private:
  static bool is_large([[maybe_unused]] std::size_t size) {
#ifdef __linux__
    constexpr std::size_t kLarge = std::size_t{1} << 19;
    return size >= kLarge / sizeof(T);
#else
    return false;
#endif
  }
};

// For arrays that grow with the number of batches.
template <class T>
using LargeVector = std::vector<T, PageAllocator<T>>;

// Appends to `values` in a call of its own: in a loop that seldom has to, what it would take inline
// costs registers.
template <class Vector>
[[gnu::noinline]] void append_apart(Vector& values, typename Vector::value_type value) {
  values.push_back(value);
}

// Empties `values` and gives their memory back, which to assign or to clear does not.
template <class T>
void free_memory(LargeVector<T>& values) {
  LargeVector<T>().swap(values);
}

}  // namespace evenstride
