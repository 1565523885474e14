#include "cuda/kernel_image.h"

namespace evenstride {

#ifdef EVENSTRIDE_NVCC_VERSION

namespace {

alignas(16) constexpr unsigned char kImage[] = {
#include "cuda/pad_kernel.inc"
};

}  // namespace

std::span<const unsigned char> kernel_image() noexcept {
  return kImage;
}

std::string_view kernel_compiler() noexcept {
  return EVENSTRIDE_NVCC_VERSION;
}

#else

std::span<const unsigned char> kernel_image() noexcept {
  return {};
}

std::string_view kernel_compiler() noexcept {
  return {};
}

#endif

}  // namespace evenstride
