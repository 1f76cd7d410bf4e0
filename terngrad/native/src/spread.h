// Spreads a loop over the threads of a shared pool.

#ifndef TERNGRAD_NATIVE_SPREAD_H_
#define TERNGRAD_NATIVE_SPREAD_H_

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace terngrad {

// Busy-waits until holds() is true, at most for `most`; false on timeout.
template <typename Holds>
bool Await(std::chrono::microseconds most, const Holds& holds) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

// The ranges of one loop. Each thread that joins has a share of adjacent ranges
// and starts with its first one. Otherwise threads would work on neighbors, and
// one would prefetch what the other writes. A thread without ranges takes the
// last half of another share, so that no thread waits for one that starts late.
//
// Ownership is shared by helpers and the caller, because a helper that starts
// late outlives the loop.
class Ranges {
 public:
  Ranges(int64_t total, int64_t size, int most_joining,
         const std::function<void(int64_t, int64_t)>* work)
      : total_(total),
        size_(size),
        count_((total + size - 1) / size),
        work_(work),
        shares_(most_joining) {
    for (int i = 0; i < most_joining; ++i) {
      shares_[i] = Share{Border(i), Border(i + 1)};
    }
  }

  // Processes ranges until none is left.
  void Work() {
    const size_t mine = joined_.fetch_add(1);
    if (mine >= shares_.size()) return;
    do {
      for (int64_t i; (i = TakeFirst(&shares_[mine])) >= 0;) {
        // Valid, because the caller waits until the last range is finished.
        (*work_)(i * size_, std::min(total_, (i + 1) * size_));
        if (finished_.fetch_add(1) + 1 == count_) {
          std::lock_guard<std::mutex> lock(mutex_);
          all_.notify_all();
        }
      }
    } while (Refill(&shares_[mine]));
  }

  // Returns when all ranges are finished.
  void Wait() {
    const auto finished = [this] { return finished_.load() == count_; };
    // A range takes less time than waking a thread.
    if (Await(std::chrono::microseconds(50), finished)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    all_.wait(lock, finished);
  }

 private:
  // The ranges begin to end - 1.
  struct Share {
    uint32_t begin;
    uint32_t end;
  };

  uint32_t Border(int64_t share) const {
    return static_cast<uint32_t>(count_ * share /
                                 static_cast<int64_t>(shares_.size()));
  }

  // Returns the index of a range, or -1.
  static int64_t TakeFirst(std::atomic<Share>* share) {
    Share old = share->load();
    while (old.begin < old.end) {
      if (share->compare_exchange_weak(old, Share{old.begin + 1, old.end})) {
        return old.begin;
      }
    }
    return -1;
  }

  // Fills an empty share from the largest one; false if all are empty.
  bool Refill(std::atomic<Share>* empty) {
    for (;;) {
      std::atomic<Share>* largest = nullptr;
      Share most = {0, 0};
      for (std::atomic<Share>& share : shares_) {
        const Share now = share.load();
        if (now.begin < now.end && now.end - now.begin > most.end - most.begin) {
          largest = &share;
          most = now;
        }
      }
      if (!largest) return false;
      const uint32_t middle = most.begin + (most.end - most.begin) / 2;
      if (largest->compare_exchange_strong(most, Share{most.begin, middle})) {
        // No other thread writes to an empty share.
        empty->store(Share{middle, most.end});
        return true;
      }
    }
  }

  const int64_t total_;
  const int64_t size_;
  const int64_t count_;
  const std::function<void(int64_t, int64_t)>* const work_;
  std::vector<std::atomic<Share>> shares_;
  std::atomic<size_t> joined_{0};
  std::atomic<int64_t> finished_{0};
  std::mutex mutex_;
  std::condition_variable all_;
};

// Helpers without ranges busy-wait briefly for the next loop, because waking a
// thread takes as long as a small loop.
class Lingerers {
 public:
  explicit Lingerers(std::chrono::microseconds linger) : linger_(linger) {}

  // The instance of the process. Never destroyed: helpers may outlive main().
  static Lingerers& Shared() {
    constexpr std::chrono::microseconds kLinger{100};
    static std::atomic<Lingerers*> shared{new Lingerers(kLinger)};
    // A forked process has no helpers, and its copy may have a locked mutex.
    static const int forks = pthread_atfork(
        nullptr, nullptr, [] { shared = new Lingerers(kLinger); });
    (void)forks;
    return *shared;
  }

  // The number of waiting helpers.
  int Present() const { return present_.load(); }

  // Offers a loop to the waiting helpers; returns their number.
  int Offer(std::shared_ptr<Ranges> ranges) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      offered_ = std::move(ranges);
    }
    ++offers_;
    return present_.load();
  }

  // Processes `ranges` and then offered loops, until none is offered in time.
  void Help(std::shared_ptr<Ranges> ranges) {
    int64_t seen = offers_.load();
    ranges->Work();
    ++present_;
    bool stays = true;
    while (stays) {
      stays = Await(linger_, [&] { return offers_.load() != seen; });
      // Checks again after leaving: a caller that counted this helper has
      // already
// made its offer.
      if (!stays) --present_;
      if (offers_.load() == seen) continue;
      seen = offers_.load();
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ranges = offered_.lock();
      }
      if (ranges) ranges->Work();
    }
  }

 private:
  const std::chrono::microseconds linger_;
  std::atomic<int64_t> offers_{0};
  std::atomic<int> present_{0};
  std::mutex mutex_;
  std::weak_ptr<Ranges> offered_;
};

// Calls work(begin, end) for ranges of at most `size` that cover [0, total).
// The caller works too. It waits for ranges, not for threads, so that a thread
// that is not scheduled delays nothing.
//
// schedule(closure) runs a closure on another thread at any later time.
template <typename Schedule>
void Spread(int64_t total, int64_t size, int num_threads,
            const Schedule& schedule,
            const std::function<void(int64_t, int64_t)>& work,
            Lingerers& lingerers = Lingerers::Shared()) {
  if (total <= 0) return;
  if (num_threads < 2 || total <= size) {
    work(0, total);
    return;
  }
  const auto ranges = std::make_shared<Ranges>(total, size, num_threads, &work);
  for (int i = 1 + lingerers.Offer(ranges); i < num_threads; ++i) {
    schedule([ranges, &lingerers] { lingerers.Help(ranges); });
  }
  ranges->Work();
  ranges->Wait();
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_SPREAD_H_
