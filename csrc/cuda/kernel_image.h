// The kernel as it was compiled for all kinds of devices, embedded in the program.
#pragma once

#include <span>

namespace evenstride {

// Returns a fat binary, or nothing if the package was built without a CUDA compiler.
[[nodiscard]] std::span<const unsigned char> kernel_image() noexcept;

}  // namespace evenstride
