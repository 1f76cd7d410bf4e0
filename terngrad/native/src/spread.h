// Spreads a loop over threads of a pool that is shared with others.

#ifndef TERNGRAD_NATIVE_SPREAD_H_
#define TERNGRAD_NATIVE_SPREAD_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace terngrad {

// The ranges of one loop, taken by whoever is free. Helpers own it together
// with the caller, since one that starts late outlives the loop.
class Ranges {
 public:
  Ranges(int64_t total, int64_t size,
         const std::function<void(int64_t, int64_t)>* work)
      : total_(total),
        size_(size),
        count_((total + size - 1) / size),
        work_(work) {}

  // Works until no range is left to take.
  void Work() {
    for (;;) {
      const int64_t i = next_.fetch_add(1);
      // After this `work_` may be gone, with the caller that lent it.
      if (i >= count_) return;
      (*work_)(i * size_, std::min(total_, (i + 1) * size_));
      if (finished_.fetch_add(1) + 1 == count_) {
        std::lock_guard<std::mutex> lock(mutex_);
        all_.notify_all();
      }
    }
  }

  // Returns when every range has been worked on.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    all_.wait(lock, [this] { return finished_.load() == count_; });
  }

 private:
  const int64_t total_;
  const int64_t size_;
  const int64_t count_;
  const std::function<void(int64_t, int64_t)>* const work_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> finished_{0};
  std::mutex mutex_;
  std::condition_variable all_;
};

// Helpers that have no range left stay awake for a moment, since to wake a thread
// takes as long as a small loop: the next one finds them here.
class Lingerers {
 public:
  // Of the process.
  static Lingerers& Shared() {
    static Lingerers* const shared = new Lingerers;
    return *shared;
  }

  // Offers a loop to those who linger; returns how many there were.
  int Offer(std::shared_ptr<Ranges> ranges) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      offered_ = std::move(ranges);
    }
    ++offers_;
    return present_.load();
  }

  // Works on `ranges` and then on what is offered, until nothing is for kLinger.
  void Help(std::shared_ptr<Ranges> ranges) {
    int64_t seen = offers_.load();
    ranges->Work();
    ++present_;
    bool stays = true;
    while (stays) {
      stays = Await(seen);
      // After leaving it looks once more: whoever counted it has offered before.
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
  static constexpr std::chrono::microseconds kLinger{100};

  // False where no offer came in time.
  bool Await(int64_t seen) const {
    const auto end = std::chrono::steady_clock::now() + kLinger;
    while (offers_.load() == seen) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

  std::atomic<int64_t> offers_{0};
  std::atomic<int> present_{0};
  std::mutex mutex_;
  std::weak_ptr<Ranges> offered_;
};

// Calls work(begin, end) for ranges of at most `size` that make up [0, total).
// The caller works too, and waits for ranges, not for threads: one that the
// system does not let run holds nothing up.
//
// schedule(closure) runs a closure on another thread, some time or other.
template <typename Schedule>
void Spread(int64_t total, int64_t size, int num_threads,
            const Schedule& schedule,
            const std::function<void(int64_t, int64_t)>& work) {
  if (total <= 0) return;
  if (num_threads < 2 || total <= size) {
    work(0, total);
    return;
  }
  const auto ranges = std::make_shared<Ranges>(total, size, &work);
  for (int i = 1 + Lingerers::Shared().Offer(ranges); i < num_threads; ++i) {
    schedule([ranges] { Lingerers::Shared().Help(ranges); });
  }
  ranges->Work();
  ranges->Wait();
}

}  // namespace terngrad

#endif  // TERNGRAD_NATIVE_SPREAD_H_
