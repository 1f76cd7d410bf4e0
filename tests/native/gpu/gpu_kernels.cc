// All GPU kernels, for the emulator.

#include "emulator.h"
//
#include "gpu/addition.cu"
#include "gpu/addition_all.cu"
#include "gpu/fp8.cu"
#include "gpu/groups_code.cu"
#include "gpu/groups_measure.cu"
#include "gpu/natural.cu"
#include "gpu/rotated_decode.cu"
#include "gpu/rotated_encode.cu"
#include "gpu/rotated_table.cu"
#include "gpu/selection.cu"
#include "gpu/selection_all.cu"
#include "gpu/statistics.cu"
#include "gpu/ternary.cu"
#include "gpu/ternary_requantize.cu"
#include "gpu/ternary_update.cu"
