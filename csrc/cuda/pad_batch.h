// What one launch of the kernel is told: plain numbers, which a host and a device lay out alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collate/pad.h"

namespace evenstride {

inline constexpr std::uint32_t kStagingAlignment = 16;  // In bytes: the widest load of a device.

// A row in a staged slab: `length` cells in whole kStagingAlignment bytes from place *
// kStagingAlignment on, the first of them after staged_shift bytes.
struct StagedRow {
  std::uint32_t place;
  std::uint32_t length;
};

// Returns how many bytes of a staged row come before its first value, which is the `before`-th of
// sample number `row` in outputs of this width: below kStagingAlignment, and so many that every
// value stands where it would if all outputs were of the staged type, modulo kStagingAlignment.
// Then the values of a wide store are aligned for wide loads, whatever the width, the side of the
// padding and the output's type: a store begins at a multiple of 16 / out_bytes values. Sums may
// wrap, for the alignment divides 2^32.
EVENSTRIDE_HOST_DEVICE std::uint32_t staged_shift(std::uint32_t row, std::uint32_t width,
                                                  std::uint32_t before, std::uint32_t wire_bytes) {
  return (row * width + before) * wire_bytes % kStagingAlignment;
}

// An output of a batch.
struct PadField {
  enum class Rows : std::uint8_t { kValues, kLengths };  // Of a row, its values or its length.

  static constexpr std::uint32_t kNoPrompt = ~std::uint32_t{0};

  std::uint64_t out;      // Where it begins in the memory of the outputs, in bytes.
  std::uint64_t padding;  // In its low bytes.
  std::uint32_t
      prompts;          // Place of a std::uint32_t a row: how many cells are prompt. Or kNoPrompt.
  std::uint32_t width;  // Values of a row, below 2^31.
  std::uint32_t cell_values;
  Pad pad;
  Rows rows;
  bool pads_left;
};

// Outputs that are made of the same rows of the slab, so that one read serves them all.
struct PadGroup {
  std::uint32_t rows;  // Place of a StagedRow for each sample.
  std::uint32_t first_field;
  std::uint32_t end_field;
  std::uint32_t tiles;  // Of a row: those of the widest output.
};

inline constexpr std::uint32_t kMostFields = 64;

// Places in the slab are counted in kStagingAlignment bytes.
struct PadBatch {
  const std::byte* slab;  // Both at a multiple of 64 bytes.
  std::byte* out;
  std::uint32_t num_rows;
  std::uint32_t num_groups;
  PadGroup groups[kMostFields];
  PadField fields[kMostFields];
};
static_assert(sizeof(PadBatch) <= 4096, "The parameters of a kernel have 4 KiB.");

}  // namespace evenstride
