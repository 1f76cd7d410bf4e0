// Words of few elements to sums of all payloads, in their order.
//
// A block of threads adds to the elements of a chunk in shared memory, one
// payload after the other, so that it writes each element once. It finds its
// part of the ascending indices by a search. Only damaged payloads have others;
// they are added slowly, in the order of their elements.

#ifndef TERNGRAD_NATIVE_GPU_ADDITION_H_
#define TERNGRAD_NATIVE_GPU_ADDITION_H_

#include "selection.h"

namespace terngrad_gpu {

// Payloads in which the threads of a block search at a time.
constexpr int kSearched = 32;

// Shared memory of a block of threads.
struct Addition {
  float sums[kChunk];
  int begins[kSearched];
  int ends[kSearched];
  int indices[kThreads];
  float values[kThreads];
  WarpSums warps;
  int is_disordered;
};

// What a block of threads works on.
struct Additions {
  const SparseVariables& variables;
  const Payloads& payloads;
  const Adding& with;
  Addition* space;
};

// The words of a vector in a payload.
struct Words {
  int kind;
  const SparseVariable* vector;
  const uint32* words;
  const int* indices;  // Unpacked.

  __device__ inline int elements() const {
    return static_cast<int>(vector->elements);
  }

  // The index of a sent element; `elements` if it is unused or out of range.
  __device__ inline int IndexAt(int i) const {
    int index;
    if (kind == kSignedIndices) {
      index = indices[i];
    } else if (kind == kLists) {
      index = static_cast<int>(words[i]);
    } else if (i < static_cast<int>(words[0])) {
      index = static_cast<int>(words[1 + 2 * i]);
    } else {
      return elements();
    }
    return index >= 0 && index < elements() ? index : elements();
  }

  __device__ inline float ValueAt(int i) const {
    if (kind == kLists) return FloatOf(words[vector->number + i]);
    if (kind == kPairs) return FloatOf(words[2 + 2 * i]);
    const uint32 width = PlaneWords(*vector);
    const uint32 sign = (words[1 + i % width] >> (i / width)) & 1;
    return FloatOf(words[0] ^ (sign << 31));
  }
};

__device__ inline Words WordsOf(const Additions& task,
                                const SparseVariable& vector, int row) {
  const int* const indices = task.with.indices;
  return {task.variables.kind, &vector,
          PayloadOf(task.payloads, row) + vector.words,
          indices ? indices + row * task.with.entries + vector.entry : nullptr};
}

// --- Elias-Fano code

// A piece of the string of a payload.
struct Piece {
  int row;
  int number;
  uint32 from;  // Its first bit.
};

__device__ inline int PiecesOf(const SparseVariable& vector) {
  return static_cast<int>(CeilDivided(vector.string_bits, kChunk));
}

__device__ inline Piece PieceOf(const SparseVariable& vector, int64 number) {
  const int pieces = PiecesOf(vector);
  const int row = static_cast<int>(number / pieces);
  const int piece = static_cast<int>(number - static_cast<int64>(row) * pieces);
  return {row, piece, static_cast<uint32>(piece) * kChunk};
}

__device__ inline int* OnesOf(const Additions& task,
                              const SparseVariable& vector, int row) {
  // A vector has at most twice as many pieces as chunks.
  return task.with.ones + row * task.with.pieces + 2 * vector.first;
}

// 32 bits of the string for each thread.
__device__ inline uint32 BitsOfString(const Words& from, const Piece& piece) {
  const SparseVariable& vector = *from.vector;
  const uint32* const string =
      from.words + 1 + (1 + vector.low_bits) * PlaneWords(vector);
  const uint32 width = StringWords(vector);
  const auto read = [&](int at) {
    const uint32 bit = piece.from + at;
    if (bit >= vector.string_bits) return 0U;
    return (string[bit % width] >> (bit / width)) & 1;
  };
  return CollectBits(read, [](int, uint32 bit) { return bit != 0; });
}

__device__ inline void CountOnes(const Additions& task,
                                 const SparseVariable& vector,
                                 const Piece& piece) {
  const Words from = WordsOf(task, vector, piece.row);
  int total;
  Scan(__popc(BitsOfString(from, piece)), &task.space->warps, &total);
  if (threadIdx.x == 0) {
    OnesOf(task, vector, piece.row)[piece.number] = total;
  }
}

// The index of rank `rank`, whose 1 bit is at `at` in the string.
__device__ inline int Unpacked(const Words& from, int rank, uint32 at) {
  const SparseVariable& vector = *from.vector;
  const uint32 width = PlaneWords(vector);
  const uint32* const planes = from.words + 1 + width + rank % width;
  const int place = rank / width;
  // Damaged words give numbers that may be too large.
  const uint32 most = (from.elements() >> vector.low_bits) + 1;
  const uint32 high = at - rank < most ? at - rank : most;
  uint32 index = high << vector.low_bits;
  for (int bit = 0; bit < vector.low_bits; ++bit) {
    index |= ((planes[bit * width] >> place) & 1) << bit;
  }
  return static_cast<int>(index);
}

__device__ inline void Unpack(const Additions& task,
                              const SparseVariable& vector,
                              const Piece& piece) {
  const Words from = WordsOf(task, vector, piece.row);
  const int* const ones = OnesOf(task, vector, piece.row);
  int* const indices = task.with.indices + piece.row * task.with.entries +
                       vector.entry;
  int sum = 0, earlier, total;
  for (int i = threadIdx.x; i < piece.number; i += kThreads) sum += ones[i];
  Scan(sum, &task.space->warps, &earlier);
  uint32 bits = BitsOfString(from, piece);
  int rank = earlier + Scan(__popc(bits), &task.space->warps, &total);
  const int number = static_cast<int>(vector.number);
  for (; bits != 0 && rank < number; ++rank, bits &= bits - 1) {
    const uint32 at = piece.from + threadIdx.x * kWarp + __ffs(bits) - 1;
    indices[rank] = Unpacked(from, rank, at);
  }
  if (piece.number + 1 < PiecesOf(vector)) return;
  // Damaged words may have too few ones.
  for (int i = earlier + total + threadIdx.x; i < number; i += kThreads) {
    indices[i] = from.elements();
  }
}

// --- sums

// Writes whether indices do not ascend in the chunk's share of all payloads.
__device__ inline void CheckOrder(const Additions& task, const Chunk& chunk) {
  const SparseVariable& vector = *chunk.variable;
  const int local = chunk.number - vector.first;
  const int begin = static_cast<int>(vector.number * local / vector.chunks);
  const int end =
      static_cast<int>(vector.number * (local + 1) / vector.chunks);
  if (threadIdx.x == 0) task.space->is_disordered = 0;
  __syncthreads();
  const int share = end - begin;
  const int64 count = static_cast<int64>(share) * task.payloads.count;
  for (int64 k = threadIdx.x; k < count; k += kThreads) {
    const int row = static_cast<int>(k / share);
    const int i = begin + static_cast<int>(k - static_cast<int64>(row) * share);
    const Words words = WordsOf(task, vector, row);
    const int index = words.IndexAt(i);
    if (i > 0 && index < words.elements() && index <= words.IndexAt(i - 1)) {
      task.space->is_disordered = 1;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    task.with.disorder[chunk.number] =
        static_cast<unsigned char>(task.space->is_disordered);
  }
}

// The first sent element whose index is `least` or larger, for a warp.
__device__ inline int FirstFrom(const Words& words, int least) {
  const int lane = threadIdx.x % kWarp;
  int from = 0, count = static_cast<int>(words.vector->number);
  while (count > 0) {
    const int step = (count + kWarp - 1) / kWarp;
    const int64 at = static_cast<int64>(lane) * step;
    const bool is_below =
        at < count && words.IndexAt(from + static_cast<int>(at)) < least;
    const int below = __popc(__ballot_sync(kAllLanes, is_below));
    if (below == 0) break;
    // It is after the last one below, and not after the next one.
    const int skipped = (below - 1) * step + 1;
    from += skipped;
    count = count - skipped < step - 1 ? count - skipped : step - 1;
  }
  return from;
}

// Adds the chunk's elements of up to kSearched payloads from `first` on.
__device__ inline void AddSorted(const Additions& task, const Chunk& chunk,
                                 int first, int rows) {
  Addition* const space = task.space;
  const SparseVariable& vector = *chunk.variable;
  for (int row = threadIdx.x / kWarp; row < rows; row += kWarps) {
    const Words words = WordsOf(task, vector, first + row);
    const int begin = FirstFrom(words, chunk.index);
    const int end = FirstFrom(words, chunk.index + chunk.size);
    if (threadIdx.x % kWarp == 0) {
      space->begins[row] = begin;
      space->ends[row] = end;
    }
  }
  __syncthreads();
  for (int row = 0; row < rows; ++row) {
    const Words words = WordsOf(task, vector, first + row);
    const int end = space->ends[row];
    for (int i = space->begins[row] + threadIdx.x; i < end; i += kThreads) {
      space->sums[words.IndexAt(i) - chunk.index] += words.ValueAt(i);
    }
    __syncthreads();
  }
}

// The same for indices in any order, which may be equal: a thread adds to every
// 256th element.
__device__ inline void AddDisordered(const Additions& task, const Chunk& chunk,
                                     int first, int rows) {
  Addition* const space = task.space;
  const SparseVariable& vector = *chunk.variable;
  const int number = static_cast<int>(vector.number);
  for (int row = first; row < first + rows; ++row) {
    const Words words = WordsOf(task, vector, row);
    for (int from = 0; from < number; from += kThreads) {
      const int count = number - from < kThreads ? number - from : kThreads;
      if (threadIdx.x < count) {
        const int i = from + threadIdx.x;
        const int index = words.IndexAt(i);
        space->indices[threadIdx.x] =
            index < words.elements() ? index - chunk.index : -1;
        space->values[threadIdx.x] = words.ValueAt(i);
      }
      __syncthreads();
      for (int i = 0; i < count; ++i) {
        const int at = space->indices[i];
        if (at >= 0 && at < chunk.size && at % kThreads == threadIdx.x) {
          space->sums[at] += space->values[i];
        }
      }
      __syncthreads();
    }
  }
}

__device__ inline void AddElements(const Additions& task, const Chunk& chunk) {
  Addition* const space = task.space;
  const SparseVariable& vector = *chunk.variable;
  if (threadIdx.x == 0) space->is_disordered = 0;
  for (int i = threadIdx.x; i < chunk.size; i += kThreads) space->sums[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < vector.chunks; i += kThreads) {
    if (task.with.disorder[vector.first + i]) space->is_disordered = 1;
  }
  __syncthreads();
  for (int row = 0; row < task.payloads.count; row += kSearched) {
    const int rest = task.payloads.count - row;
    const int rows = rest < kSearched ? rest : kSearched;
    if (space->is_disordered) {
      AddDisordered(task, chunk, row, rows);
    } else {
      AddSorted(task, chunk, row, rows);
    }
  }
  const float scale = task.with.scale;
  for (int i = threadIdx.x; i < chunk.size; i += kThreads) {
    const float sum = space->sums[i];
    chunk.data[i] = scale != 1.0f ? sum * scale : sum;
  }
}

// Calls a step for a chunk's share of the pieces of all payloads.
template <typename Step>
__device__ inline void ForPieces(const Additions& task, const Chunk& chunk,
                                 const Step& step) {
  const SparseVariable& vector = *chunk.variable;
  const int64 count =
      static_cast<int64>(task.payloads.count) * PiecesOf(vector);
  for (int64 i = chunk.number - vector.first; i < count; i += vector.chunks) {
    step(task, vector, PieceOf(vector, i));
  }
}

}  // namespace terngrad_gpu

#endif  // TERNGRAD_NATIVE_GPU_ADDITION_H_
