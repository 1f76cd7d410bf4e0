// Runs a libFuzzer target with inputs that coverage guides, where there is no
// clang: the target is compiled with g++ -fsanitize-coverage=trace-pc, which
// calls the function below at every edge, and this file without it.
//
//   driver EXECUTIONS SEED
//
// An input that takes an edge, or takes it more often than any before (by
// powers of two), is kept and mutated later on. Prints how many executions,
// kept inputs and edges there were; prints the input that a sanitizer stops at.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)());
extern "C" void __sanitizer_cov_trace_pc();

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kMapSize = 1 << 16;
constexpr size_t kMaxInput = 4096;

uint32_t hits[kMapSize];
uint32_t seen[kMapSize];  // one bit for each power of two
uintptr_t previous;
Input current;

void PrintCurrent() {
  std::fprintf(stderr, "input:");
  for (uint8_t byte : current) std::fprintf(stderr, " %02x", byte);
  std::fprintf(stderr, "\n");
}

// Whether the run of `current` did something new.
bool Run() {
  std::fill(hits, hits + kMapSize, 0u);
  previous = 0;
  // A copy of just the size, so that reading past its end is seen.
  const Input exact(current.begin(), current.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  bool news = false;
  for (size_t i = 0; i < kMapSize; ++i) {
    if (!hits[i]) continue;
    const uint32_t bit = uint32_t{1} << (31 - __builtin_clz(hits[i]));
    news |= !(seen[i] & bit);
    seen[i] |= bit;
  }
  return news;
}

size_t Edges() {
  size_t edges = 0;
  for (uint32_t bits : seen) edges += bits != 0;
  return edges;
}

void Mutate(std::mt19937& random, const std::vector<Input>& corpus) {
  const auto below = [&](size_t n) { return n ? random() % n : 0; };
  for (size_t times = 1 + below(4); times > 0; --times) {
    const size_t at = below(current.size());
    switch (below(7)) {
      case 0:
        if (!current.empty()) current[at] ^= 1 << below(8);
        break;
      case 1:
        if (!current.empty()) current[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        if (!current.empty()) current[at] += below(2) ? 1 : -1;
        break;
      case 3: {
        const Input fresh(1 + below(8), static_cast<uint8_t>(random()));
        current.insert(current.begin() + at, fresh.begin(), fresh.end());
        break;
      }
      case 4:
        current.resize(at);
        break;
      case 5: {
        const Input& other = corpus[below(corpus.size())];
        const size_t from = below(other.size());
        current.resize(at);
        current.insert(current.end(), other.begin() + from, other.end());
        break;
      }
      default:
        for (size_t i = below(64); i > 0; --i) current.push_back(random());
    }
  }
  if (current.size() > kMaxInput) current.resize(kMaxInput);
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  // Relative to this program, so that a seed does the same in every run.
  const auto here = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) -
                    reinterpret_cast<uintptr_t>(&__sanitizer_cov_trace_pc);
  ++hits[(here ^ previous) % kMapSize];
  previous = here >> 1;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s EXECUTIONS SEED\n", argv[0]);
    return 2;
  }
  __sanitizer_set_death_callback(PrintCurrent);
  const long executions = std::atol(argv[1]);
  std::mt19937 random(static_cast<uint32_t>(std::atol(argv[2])));
  std::vector<Input> corpus = {{}};
  for (uint8_t task = 0; task < 8; ++task) {
    corpus.push_back({task, 200, 0, 1, 0, 0, 0});
    corpus.push_back({task, 0xE0, 0x2E, 1, 2, 0, 1, 1, 0});
  }
  for (const Input& seed : corpus) {
    current = seed;
    Run();
  }
  const size_t seeds = corpus.size(), seed_edges = Edges();
  for (long i = 0; i < executions; ++i) {
    // Now and then an input of nothing but noise.
    current = random() % 8 ? corpus[random() % corpus.size()] : Input();
    Mutate(random, corpus);
    if (Run()) corpus.push_back(current);
  }
  std::printf("%ld executions, %zu inputs kept beside %zu, %zu edges after %zu\n",
              executions, corpus.size() - seeds, seeds, Edges(), seed_edges);
  return 0;
}
