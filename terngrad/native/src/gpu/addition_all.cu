// Words of few elements to sums of all payloads, by one launch. A file of its
// own is compiled at the same time as the other kernels.

#include "addition.h"

namespace terngrad_gpu {

// All steps in one launch, for small vectors: a block of threads for each.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_add_all(const __grid_constant__ SparseVariables variables,
                     const __grid_constant__ Payloads payloads,
                     const __grid_constant__ Adding with) {
  __shared__ Addition space;
  const Additions task = {variables, payloads, with, &space};
  const SparseVariable& vector = VectorAt(variables, blockIdx.x);
  if (variables.kind == kSignedIndices) {
    ForChunks(variables, vector, [&](const Chunk& chunk) {
      ForPieces(task, chunk, CountOnes);
    });
    ForChunks(variables, vector,
              [&](const Chunk& chunk) { ForPieces(task, chunk, Unpack); });
  }
  ForChunks(variables, vector,
            [&](const Chunk& chunk) { CheckOrder(task, chunk); });
  ForChunks(variables, vector,
            [&](const Chunk& chunk) { AddElements(task, chunk); });
}

}  // namespace terngrad_gpu
