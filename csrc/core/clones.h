// Compiles a function once for each of several instruction sets; the loader takes the best.
#pragma once

// Only for functions whose result is the same in all of them: integers, no floating point. The
// sanitizers instrument the code that chooses, which runs before they are ready.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EVENSTRIDE_CLONES \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define EVENSTRIDE_CLONES
#endif
