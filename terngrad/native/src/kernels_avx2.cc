#define TERNGRAD_ISA avx2
#define TERNGRAD_ISA_NAME "avx2"
#define TERNGRAD_LANES 8
#include "kernels_impl.h"
