#include "cuda/pinned.h"

namespace evenstride {}
