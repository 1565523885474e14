#include "cuda/lane.h"

namespace evenstride {}
