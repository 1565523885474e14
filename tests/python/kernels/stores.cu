// Rows whose stores are all as wide as a device can make them: the middle of a tile, alone.
#include <cstdint>

#include "cuda/pad_tile.h"

namespace {

constexpr std::uint32_t kLanes = 32;

template <class Source, class Out>
__device__ void stores(const evenstride::PadRow& row, std::uint32_t begin, std::uint32_t end) {
  evenstride::pad_stores<Source, Out, kLanes, evenstride::PlainStore>(row, evenstride::Shown(row),
                                                                      begin, end, threadIdx.x);
}

}  // namespace

using evenstride::StagedValuesOf;

extern "C" {

__global__ void uint16_to_int64(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<StagedValuesOf<std::uint16_t>, std::uint64_t>(row, begin, end);
}

__global__ void int32_to_int64(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<StagedValuesOf<std::int32_t>, std::uint64_t>(row, begin, end);
}

__global__ void int64_to_int64(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<StagedValuesOf<std::uint64_t>, std::uint64_t>(row, begin, end);
}

__global__ void mask_of_int64(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<evenstride::MaskOf, std::uint64_t>(row, begin, end);
}

__global__ void positions_of_int64(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<evenstride::PositionsOf, std::uint64_t>(row, begin, end);
}

__global__ void float32_to_float32(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<StagedValuesOf<std::uint32_t>, std::uint32_t>(row, begin, end);
}

__global__ void mask_of_bool(evenstride::PadRow row, std::uint32_t begin, std::uint32_t end) {
  stores<evenstride::MaskOf, std::uint8_t>(row, begin, end);
}
}
