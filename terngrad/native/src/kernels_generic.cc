#define TERNGRAD_ISA generic
#define TERNGRAD_ISA_NAME "generic"
#define TERNGRAD_LANES 4
#include "kernels_impl.h"
