#include "cuda/blocks.h"

namespace evenstride {}
