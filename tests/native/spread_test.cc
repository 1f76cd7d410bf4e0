// Claims about terngrad/native/src/spread.h, one a run, by its name:
//
//   spread_test CLAIM
//
// Exits with 0 where it holds. What must not hang is ended by an alarm.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "spread.h"

namespace {

using terngrad::Lingerers;
using terngrad::Spread;

constexpr std::chrono::microseconds kLong{200'000};

void Require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::exit(1);
}

// Threads that are started, one for each closure, and joined at the end.
struct Threads {
  ~Threads() {
    for (std::thread& thread : started) thread.join();
  }
  void operator()(std::function<void()> closure) {
    started.emplace_back(std::move(closure));
  }
  std::vector<std::thread> started;
};

// A loop of two ranges, neither of which ends before both have begun: it takes
// two threads.
void TakeTwo(const std::function<void(std::function<void()>)>& schedule,
             Lingerers* lingerers) {
  std::atomic<int> begun{0};
  Spread(2, 1, 2, schedule, [&](int64_t, int64_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  }, *lingerers);
}

void OfferIsTakenWithoutWaking() {
  Lingerers lingerers(kLong);
  Threads threads;
  const auto schedule = [&](std::function<void()> closure) {
    threads(std::move(closure));
  };
  int taken = 0;
  for (int i = 0; i < 100; ++i) {
    const size_t before = threads.started.size();
    TakeTwo(schedule, &lingerers);
    taken += threads.started.size() == before;
    // The helper is about to linger; a system may let it wait for its turn.
    while (!lingerers.Present()) std::this_thread::yield();
  }
  // Not 99: it may have been kept from running for longer than it lingers.
  Require(taken > 50, "most loops find the helper of the previous loop");
}

void HelperGoesAway() {
  Lingerers lingerers(std::chrono::microseconds(100));
  {
    Threads threads;
    TakeTwo([&](std::function<void()> closure) { threads(std::move(closure)); },
            &lingerers);
  }
  Require(lingerers.Present() == 0, "a thread that has left does not count");
  int scheduled = 0;
  Spread(2, 1, 2, [&](std::function<void()>) { ++scheduled; },
         [](int64_t, int64_t) {}, lingerers);
  Require(scheduled == 1, "after it has left, a loop asks for another helper");
}

void Detach(std::function<void()> closure) {
  std::thread(std::move(closure)).detach();
}

void ProcessEndsWhileAHelperRuns() {
  auto* const lingerers = new Lingerers(std::chrono::hours(1));
  TakeTwo(Detach, lingerers);
}

void ForkedProcessAsksForNewHelpers() {
  Lingerers& shared = Lingerers::Shared();
  for (int i = 0; i < 50; ++i) {
    TakeTwo(Detach, &shared);
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      int scheduled = 0;
      int64_t done = 0;
      // Helpers that never come: the caller works alone.
      Spread(10, 1, 2, [&](std::function<void()>) { ++scheduled; },
             [&](int64_t begin, int64_t end) { done += end - begin; });
      _exit(scheduled == 1 && done == 10 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    Require(status == 0, "a forked process works without the parent's helper");
  }
}

void RangesOfAThreadAreAdjacent() {
  constexpr int64_t kRanges = 1000;
  std::vector<std::thread::id> worked(kRanges);
  Threads threads;
  Lingerers lingerers(std::chrono::microseconds(1));
  std::atomic<int> begun{0};
  Spread(kRanges, 1, 2,
         [&](std::function<void()> closure) { threads(std::move(closure)); },
         [&](int64_t begin, int64_t) {
           worked[begin] = std::this_thread::get_id();
           // Neither runs off with all of them before the other has begun.
           ++begun;
           while (begun < 2) std::this_thread::yield();
         },
         lingerers);
  int changes = 0;
  for (int64_t i = 1; i < kRanges; ++i) changes += worked[i] != worked[i - 1];
  // Each time that a share is halved adds one: twice the logarithm of 1000.
  Require(changes >= 1 && changes <= 20, "each thread takes adjacent ranges");
}

const std::map<std::string, void (*)()> kClaims = {
    {"offer_is_taken_without_waking", OfferIsTakenWithoutWaking},
    {"helper_goes_away", HelperGoesAway},
    {"process_ends_while_a_helper_runs", ProcessEndsWhileAHelperRuns},
    {"forked_process_asks_for_new_helpers", ForkedProcessAsksForNewHelpers},
    {"ranges_of_a_thread_are_adjacent", RangesOfAThreadAreAdjacent},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !kClaims.count(argv[1])) return 2;
  alarm(120);
  kClaims.at(argv[1])();
  return 0;
}
