// The most memory that this process has used, as the system counts it.
#pragma once

#ifdef __linux__
#include <malloc.h>
#endif

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace evenstride {

// Memory of this process that was in use at most since this object was made; nothing where the
// system does not tell.
class PeakMemory {
 public:
  PeakMemory() {
#ifdef __GLIBC__
    (void)malloc_trim(0);  // What is only kept for later use would hide what is used.
#endif
    std::ofstream("/proc/self/clear_refs") << "5";  // The peak begins anew.
    before_ = status("VmRSS:");
  }

  [[nodiscard]] std::optional<std::uint64_t> bytes() const {
    const auto now = status("VmHWM:");
    return before_ && now ? std::optional(*now - *before_) : std::nullopt;
  }

 private:
  static std::optional<std::uint64_t> status(const std::string& name) {
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
      std::uint64_t kibibytes = 0;
      if (word == name && file >> kibibytes) {
        return kibibytes * 1024;
      }
    }
    return std::nullopt;
  }

  std::optional<std::uint64_t> before_;
};

}  // namespace evenstride
