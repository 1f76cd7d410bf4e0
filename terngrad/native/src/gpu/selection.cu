// The largest elements of vectors to words.
//
// The last block of threads of a vector finishes each step. Sums are of integers,
// or, for the mean magnitude, have a fixed order. So no bit depends on the order
// of the blocks.

#include "positions.h"

namespace terngrad_gpu {

// A block of threads for each vector.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_sample(const __grid_constant__ SparseVariables variables,
                           const __grid_constant__ Selecting to) {
  __shared__ Workspace space;
  Start({variables, to, &space}, blockIdx.x);
}

// The next ones have a block of threads for each chunk.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_candidates(
        const __grid_constant__ SparseVariables variables,
        const __grid_constant__ Selecting to) {
  __shared__ Workspace space;
  const Task task = {variables, to, &space};
  const Chunk chunk = ChunkOf(variables, blockIdx.x);
  const SparseVariable& vector = *chunk.variable;
  Candidates(task, chunk);
  int* const ended = to.selections[vector.vector].ended;
  if (!IsLast(ended, vector.chunks, &space.is_last)) return;
  FinishCandidates(task, vector);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_digit(const __grid_constant__ SparseVariables variables,
                          const __grid_constant__ Selecting to, int digit) {
  __shared__ Workspace space;
  const Task task = {variables, to, &space};
  const Chunk chunk = ChunkOf(variables, blockIdx.x);
  const SparseVariable& vector = *chunk.variable;
  CountDigit(task, chunk, digit);
  int* const ended = to.selections[vector.vector].ended + digit;
  if (!IsLast(ended, vector.chunks, &space.is_last)) return;
  FinishDigit(task, vector, digit);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_count(const __grid_constant__ SparseVariables variables,
                          const __grid_constant__ Selecting to) {
  __shared__ Workspace space;
  const Task task = {variables, to, &space};
  const Chunk chunk = ChunkOf(variables, blockIdx.x);
  const SparseVariable& vector = *chunk.variable;
  CountElements(task, chunk);
  int* const ended = to.selections[vector.vector].ended + 3;
  if (!IsLast(ended, vector.chunks, &space.is_last)) return;
  FinishCounts(task, vector);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_write(const __grid_constant__ SparseVariables variables,
                          const __grid_constant__ Selecting to) {
  __shared__ Workspace space;
  const Task task = {variables, to, &space};
  const Chunk chunk = ChunkOf(variables, blockIdx.x);
  const SparseVariable& vector = *chunk.variable;
  WriteElements(task, chunk);
  if (variables.kind != kSignedIndices) return;
  int* const ended = to.selections[vector.vector].ended + 4;
  if (!IsLast(ended, vector.chunks, &space.is_last)) return;
  FinishElements(task, vector);
}

// Only for kSignedIndices.
extern "C" __global__ void __launch_bounds__(kThreads)
    terngrad_select_pack(const __grid_constant__ SparseVariables variables,
                         const __grid_constant__ Selecting to) {
  PackIndices({variables, to, nullptr}, ChunkOf(variables, blockIdx.x));
}

}  // namespace terngrad_gpu
