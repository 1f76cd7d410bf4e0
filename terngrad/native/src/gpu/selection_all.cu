// The largest elements of vectors to words, by one launch. A file of its own is
// compiled at the same time as the other kernels.

#include "positions.h"

namespace terngrad_gpu {

// All steps in one launch, for small vectors: a block of threads for each.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_all(const __grid_constant__ SparseVariables variables,
                        const __grid_constant__ Selecting to) {
  __shared__ Workspace space;
  const Task task = {variables, to, &space};
  const SparseVariable& vector = VectorAt(variables, blockIdx.x);
  Start(task, blockIdx.x);
  __syncthreads();
  ForChunks(variables, vector,
            [&](const Chunk& chunk) { Candidates(task, chunk); });
  FinishCandidates(task, vector);
  __syncthreads();
#pragma unroll 1
  for (int digit = 1; digit <= 2; ++digit) {
    ForChunks(variables, vector,
              [&](const Chunk& chunk) { CountDigit(task, chunk, digit); });
    FinishDigit(task, vector, digit);
    __syncthreads();
  }
  ForChunks(variables, vector,
            [&](const Chunk& chunk) { CountElements(task, chunk); });
  FinishCounts(task, vector);
  __syncthreads();
  ForChunks(variables, vector,
            [&](const Chunk& chunk) { WriteElements(task, chunk); });
  if (variables.kind != kSignedIndices) return;
  FinishElements(task, vector);
  ForChunks(variables, vector,
            [&](const Chunk& chunk) { PackIndices(task, chunk); });
}

}  // namespace terngrad_gpu
