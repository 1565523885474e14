// Kernels that each have one fault, which the checks of the kernel's code must find; and one that
// has none.
#include <cstdint>

namespace {

struct alignas(16) Pair {
  std::uint64_t first;
  std::uint64_t second;
};

__device__ void hold_many_values(std::uint32_t* out) {
  constexpr std::uint32_t kMany = 96;
  std::uint32_t values[kMany];
#pragma unroll
  for (std::uint32_t i = 0; i < kMany; ++i) {
    values[i] = out[i * 1024 + threadIdx.x];
  }
  __syncthreads();
#pragma unroll
  for (std::uint32_t i = 0; i < kMany; ++i) {
    out[i * 1024 + threadIdx.x] = values[kMany - 1 - i] * values[i / 2];
  }
}

}  // namespace

extern "C" {

__global__ void faultless(Pair* out, const std::uint32_t* values, std::uint32_t count) {
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) {
    out[i] = {values[2 * i], values[2 * i + 1]};
  }
}

__global__ void narrow_store(std::uint64_t* out, const std::uint32_t* values, std::uint32_t count) {
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) {
    out[i] = values[i];
  }
}

// Global memory, or shared.
__global__ void generic_access(std::uint32_t* out, std::uint32_t count) {
  __shared__ std::uint32_t shared[64];
  shared[threadIdx.x % 64] = count;
  std::uint32_t* const place = count % 2 == 0 ? out : shared;
  place[count % 64] = 7;
  out[1 + threadIdx.x] = shared[count % 64];
}

__global__ void many_registers(std::uint32_t* out) {
  hold_many_values(out);
}

__global__ void __launch_bounds__(1024) spill(std::uint32_t* out) {
  hold_many_values(out);
}

__global__ void long_division(std::uint64_t* out, std::uint64_t divisor) {
  out[threadIdx.x] /= divisor;
}
}
