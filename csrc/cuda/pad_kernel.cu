// The kernel: each warp takes tiles of rows, a group of outputs for each y of the grid.
#include <cstdint>

#include "cuda/pad_batch.h"
#include "cuda/pad_tile.h"

namespace {

constexpr std::uint32_t kWarp = 32;

}  // namespace

// With room for 64 registers: left to themselves, compilers aim at more warps than so few blocks
// have, and spill.
extern "C" __global__ void __launch_bounds__(256, 4)
    evenstride_pad(const __grid_constant__ evenstride::PadBatch batch) {
  const evenstride::PadGroup& group = batch.groups[blockIdx.y];
  const std::uint32_t warps = blockDim.x / kWarp;
  const std::uint32_t lane = threadIdx.x % kWarp;
  evenstride::TileWalk walk(blockIdx.x * warps + threadIdx.x / kWarp, gridDim.x * warps,
                            group.tiles);
  for (; walk.row < batch.num_rows; walk.advance()) {
    evenstride::pad_tile<kWarp>(batch, group, walk.row, walk.tile, lane);
  }
}
