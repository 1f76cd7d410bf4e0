// Runs kernels of CUDA C++ on the CPU: one block at a time, a fiber a thread.
//
// A fiber runs until it waits at __syncthreads, a shuffle or a ballot. Then
// another one runs, in an order that a seed decides, so that a kernel without a
// needed barrier gives other results for other seeds. Shared memory has any
// contents when a block begins. A thread that waits for one that has ended, or
// for one that waits elsewhere, ends the program with a message.
//
// Float32 numbers are flushed to zero as --ftz=true does, if the caller has set
// the processor so: fibers have the settings of the thread that launches.

#ifndef TESTS_NATIVE_GPU_EMULATOR_H_
#define TESTS_NATIVE_GPU_EMULATOR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <xmmintrin.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// All __shared__ variables are in this section.
extern "C" char __start_gpu_shared[], __stop_gpu_shared[];

// Goes on where another stack was left: `to` points at the registers that a
// call preserves, and *from to those of this stack. Unlike swapcontext it makes
// no system call.
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
  .text
  .weak emulator_switch
  .hidden emulator_switch
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emulator {

constexpr int kWarp = 32;
constexpr size_t kStack = 64 << 10;
// The settings by which x86 flushes results and operands to zero.
constexpr unsigned kFlushes = 0x8040;

struct Index {
  unsigned x;
};

enum class State { kReady, kAtBarrier, kAtExchange, kEnded };

struct Fiber {
  std::unique_ptr<char[]> stack{new char[kStack]};
  void* pointer;  // Where the stack was left.
  State state;
  Index thread;
  unsigned mask;      // Of the lanes that take part in an exchange.
  uint32_t given[2];  // Values of this lane's last two exchanges.
  int exchanges;
  void* fake = nullptr;  // Of AddressSanitizer.
};

inline std::vector<Fiber> fibers;
inline Fiber* current;
inline void* scheduler;  // Where its stack was left.
inline void* scheduler_fake;
inline Index block, blocks, threads;
inline std::function<void()> body;
inline std::mt19937_64 order;

[[noreturn]] inline void Fail(const char* message) {
  std::printf("block %u, thread %u: %s\n", block.x,
              current ? current->thread.x : 0, message);
  std::exit(1);
}

#if defined(__SANITIZE_ADDRESS__)
inline const void* scheduler_stack;
inline size_t scheduler_size;
inline void Leave(void** fake, const void* stack, size_t size) {
  __sanitizer_start_switch_fiber(fake, stack, size);
}
inline void Enter(void* fake, bool fiber) {
  __sanitizer_finish_switch_fiber(fake, fiber ? &scheduler_stack : nullptr,
                                  fiber ? &scheduler_size : nullptr);
}
inline const void* SchedulerStack() { return scheduler_stack; }
inline size_t SchedulerSize() { return scheduler_size; }
#else
inline void Leave(void**, const void*, size_t) {}
inline void Enter(void*, bool) {}
inline const void* SchedulerStack() { return nullptr; }
inline size_t SchedulerSize() { return 0; }
#endif

// Waits until the scheduler lets the fiber go on.
inline void Wait(State state) {
  Fiber* const self = current;
  self->state = state;
  Leave(&self->fake, SchedulerStack(), SchedulerSize());
  emulator_switch(&self->pointer, scheduler);
  Enter(self->fake, true);
}

// The function of every fiber, which runs one thread after the other.
inline void RunThreads() {
  Enter(nullptr, true);
  while (true) {
    body();
    Wait(State::kEnded);
  }
}

// Prepares the stack of a fiber: it begins with RunThreads.
inline void Begin(Fiber* fiber) {
  constexpr int kRegisters = 6;
  const uintptr_t end = reinterpret_cast<uintptr_t>(fiber->stack.get()) + kStack;
  void** const top = reinterpret_cast<void**>(end / 16 * 16) - kRegisters - 2;
  std::fill_n(top, kRegisters + 2, nullptr);
  top[kRegisters] = reinterpret_cast<void*>(&RunThreads);
  fiber->pointer = top;
}

inline void Resume(Fiber* fiber) {
  current = fiber;
  Leave(&scheduler_fake, fiber->stack.get(), kStack);
  emulator_switch(&scheduler, fiber->pointer);
  Enter(scheduler_fake, false);
  current = nullptr;
}

// Makes the fibers ready that no longer have to wait; false if there are none.
inline bool Release() {
  bool any = false;
  const auto is = [](State state) {
    return [state](const Fiber& f) { return f.state == state; };
  };
  if (std::all_of(fibers.begin(), fibers.end(), is(State::kAtBarrier))) {
    for (Fiber& fiber : fibers) fiber.state = State::kReady;
    return true;
  }
  for (size_t warp = 0; warp < fibers.size(); warp += kWarp) {
    const auto first = fibers.begin() + warp;
    const auto waits = [&](unsigned lane) {
      return first[lane].state == State::kAtExchange;
    };
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (!waits(lane)) continue;
      const unsigned mask = first[lane].mask;
      bool all = mask >> lane & 1;
      for (unsigned k = 0; k < kWarp; ++k) {
        all &= !(mask >> k & 1) || (waits(k) && first[k].mask == mask);
      }
      if (!all) continue;
      for (unsigned k = 0; k < kWarp; ++k) {
        if (mask >> k & 1) first[k].state = State::kReady;
      }
      any = true;
    }
  }
  return any;
}

// AddressSanitizer sees no access between the variables.
inline void FillShared() {
  char* at = __start_gpu_shared;
  size_t count = __stop_gpu_shared - __start_gpu_shared;
  asm volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(0xa5) : "memory");
}

inline void RunBlock() {
  FillShared();
  for (size_t i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.state = State::kReady;
    fiber.thread = {static_cast<unsigned>(i)};
    fiber.exchanges = 0;
  }
  // Either all warps go on together, or one after the other gets as far as it
  // can before the others begin.
  const bool one_by_one = order() % 2;
  std::vector<size_t> warps(fibers.size() / kWarp);
  std::iota(warps.begin(), warps.end(), 0);
  std::shuffle(warps.begin(), warps.end(), order);
  std::vector<Fiber*> ready;
  do {
    ready.clear();
    for (const size_t warp : warps) {
      for (size_t k = 0; k < kWarp; ++k) {
        Fiber& fiber = fibers[warp * kWarp + k];
        if (fiber.state == State::kReady) ready.push_back(&fiber);
      }
      if (one_by_one && !ready.empty()) break;
    }
    std::shuffle(ready.begin(), ready.end(), order);
    for (Fiber* fiber : ready) Resume(fiber);
  } while (Release() || !ready.empty());
  for (Fiber& fiber : fibers) {
    current = &fiber;
    if (fiber.state != State::kEnded) Fail("waits for threads that never come");
  }
  current = nullptr;
}

// Runs `kernel(arguments...)` for a grid of blocks, in a random order.
template <typename... Parameters, typename... Arguments>
void Launch(uint64_t seed, int64_t grid, int threads_of_block,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  order.seed(seed);
  blocks = {static_cast<unsigned>(grid)};
  threads = {static_cast<unsigned>(threads_of_block)};
  if (fibers.size() != static_cast<size_t>(threads_of_block)) {
    fibers = std::vector<Fiber>(threads_of_block);
    for (Fiber& fiber : fibers) Begin(&fiber);
  }
  body = [&] { kernel(arguments...); };
  std::vector<unsigned> numbers(grid);
  for (int64_t i = 0; i < grid; ++i) numbers[i] = static_cast<unsigned>(i);
  std::shuffle(numbers.begin(), numbers.end(), order);
  for (const unsigned number : numbers) {
    block = {number};
    RunBlock();
  }
}

inline int Lane() { return current->thread.x % kWarp; }

// The values of the lanes in `mask`, after all of them called.
inline void Exchange(unsigned mask, uint32_t given, uint32_t* all) {
  Fiber* const self = current;
  const int turn = self->exchanges++ % 2;
  self->given[turn] = given;
  self->mask = mask;
  Wait(State::kAtExchange);
  Fiber* const first = self - Lane();
  for (int k = 0; k < kWarp; ++k) all[k] = first[k].given[turn];
}

template <typename Value>
Value Shuffle(unsigned mask, Value value, int from) {
  static_assert(sizeof(Value) == 4, "32 bits");
  uint32_t bits, all[kWarp];
  std::memcpy(&bits, &value, sizeof(bits));
  Exchange(mask, bits, all);
  if (!(mask >> (from % kWarp) & 1)) Fail("reads a lane that is not there");
  std::memcpy(&value, &all[from % kWarp], sizeof(bits));
  return value;
}

}  // namespace emulator

// --- what NVRTC has without headers

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("gpu_shared")))
#define threadIdx (emulator::current->thread)
#define blockIdx (emulator::block)
#define blockDim (emulator::threads)
#define gridDim (emulator::blocks)

inline void __syncthreads() { emulator::Wait(emulator::State::kAtBarrier); }

inline void __syncwarp(unsigned mask = 0xffffffffU) {
  uint32_t all[emulator::kWarp];
  emulator::Exchange(mask, 0, all);
}

template <typename Value>
Value __shfl_xor_sync(unsigned mask, Value value, int distance) {
  return emulator::Shuffle(mask, value, emulator::Lane() ^ distance);
}

template <typename Value>
Value __shfl_sync(unsigned mask, Value value, int from) {
  return emulator::Shuffle(mask, value, from);
}

template <typename Value>
Value __shfl_up_sync(unsigned mask, Value value, int distance) {
  const int lane = emulator::Lane();
  return emulator::Shuffle(mask, value,
                           lane < distance ? lane : lane - distance);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  uint32_t all[emulator::kWarp];
  emulator::Exchange(mask, predicate != 0, all);
  unsigned bits = 0;
  for (int k = 0; k < emulator::kWarp; ++k) {
    if (mask >> k & 1) bits |= all[k] << k;
  }
  return bits;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

inline int atomicMax(int* to, int value) {
  const int before = *to;
  *to = std::max(before, value);
  return before;
}

inline int atomicMin(int* to, int value) {
  const int before = *to;
  *to = std::min(before, value);
  return before;
}

inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to = before + value;
  return before;
}

inline unsigned atomicOr(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to = before | value;
  return before;
}

// The position of the lowest 1 bit, from 1; 0 if there is none.
inline int __ffs(int bits) { return __builtin_ffs(bits); }

// Threads take turns, so that writes are seen at once.
inline void __threadfence() {}

inline int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Ties to even, as the processor rounds by default.
inline int __float2int_rn(float value) {
  return static_cast<int>(std::nearbyint(value));
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}

// The low word of high:low, shifted to the right by the low 5 bits of `shift`.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift % 32));
}

inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

// Flushes no numbers to zero. Compilers move arithmetic, but no calls, over the
// change of the processor's settings.
__attribute__((noinline)) inline float __fmaf_ieee_rn(float a, float b,
                                                      float c) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~emulator::kFlushes);
  volatile float numbers[] = {a, b, c};
  const volatile float result = std::fma(numbers[0], numbers[1], numbers[2]);
  _mm_setcsr(before);
  return result;
}

#endif  // TESTS_NATIVE_GPU_EMULATOR_H_
