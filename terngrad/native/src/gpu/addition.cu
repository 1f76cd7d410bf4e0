// Words of few elements to sums of all payloads, by several launches.

#include "addition.h"

namespace terngrad_gpu {

// A block of threads for each chunk. The first two are for kSignedIndices.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_add_count(const __grid_constant__ SparseVariables variables,
                       const __grid_constant__ Payloads payloads,
                       const __grid_constant__ Adding with) {
  __shared__ Addition space;
  ForPieces({variables, payloads, with, &space},
            ChunkOf(variables, blockIdx.x), CountOnes);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_add_unpack(const __grid_constant__ SparseVariables variables,
                        const __grid_constant__ Payloads payloads,
                        const __grid_constant__ Adding with) {
  __shared__ Addition space;
  ForPieces({variables, payloads, with, &space},
            ChunkOf(variables, blockIdx.x), Unpack);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_add_check(const __grid_constant__ SparseVariables variables,
                       const __grid_constant__ Payloads payloads,
                       const __grid_constant__ Adding with) {
  __shared__ Addition space;
  CheckOrder({variables, payloads, with, &space},
             ChunkOf(variables, blockIdx.x));
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_add_elements(const __grid_constant__ SparseVariables variables,
                          const __grid_constant__ Payloads payloads,
                          const __grid_constant__ Adding with) {
  __shared__ Addition space;
  AddElements({variables, payloads, with, &space},
              ChunkOf(variables, blockIdx.x));
}

}  // namespace terngrad_gpu
