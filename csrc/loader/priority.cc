#include "loader/priority.h"

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace evenstride {

void take_lowest_priority() noexcept {
#ifdef __linux__
  constexpr int kLowest = 19;
  // Of this thread alone, as its number is no process's. It may be refused: then it stays as it is.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowest);
#endif
}

}  // namespace evenstride
