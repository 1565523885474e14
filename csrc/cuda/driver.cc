#include "cuda/driver.h"

namespace evenstride {}
