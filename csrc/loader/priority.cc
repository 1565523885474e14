#include "loader/priority.h"

#ifdef __linux__
#include <sys/resource.h>
#endif

namespace evenstride {

void take_lowest_priority() noexcept {
#ifdef __linux__
  constexpr int kLowest = 19;
  // 0 is this thread alone. It may be refused: then it stays as it is.
  (void)setpriority(PRIO_PROCESS, 0, kLowest);
#endif
}

}  // namespace evenstride
