#define TERNGRAD_ISA avx512
#define TERNGRAD_ISA_NAME "avx512"
#define TERNGRAD_LANES 16
#include "kernels_impl.h"
