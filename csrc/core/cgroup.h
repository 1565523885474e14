// How much processor time the control groups of this process leave to it (Linux).
#pragma once

#include <filesystem>

namespace evenstride {

// Returns how many processors' time the process may use: the quota over the period, of the tightest
// of its control groups and those that they are in, of version 2 (cpu.max) or 1 (cpu.cfs_quota_us).
// Infinite where nothing limits it, or there is nothing to read.
//
// `root` is where /proc and /sys are. A group that cannot be seen from here, as in a container, is
// taken for the outermost one that can.
[[nodiscard]] double processors_of_cgroups(const std::filesystem::path& root = "/");

}  // namespace evenstride
