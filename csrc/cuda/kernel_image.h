// The kernel as it was compiled for all kinds of devices, embedded in the program.
#pragma once

#include <span>
#include <string_view>

namespace evenstride {

// Returns a fat binary, at a multiple of 16 bytes, or nothing if the package was built without a
// CUDA compiler.
[[nodiscard]] std::span<const unsigned char> kernel_image() noexcept;

// Returns the version of nvcc that compiled it, "13.0.88", or nothing.
[[nodiscard]] std::string_view kernel_compiler() noexcept;

}  // namespace evenstride
