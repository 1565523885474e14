#include "cuda/staging.h"

namespace evenstride {}
