#include "loader/workers.h"

#ifndef _WIN32
#include <pthread.h>
#endif

#include <csignal>
#include <cstddef>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace evenstride {
namespace {

#ifdef _WIN32
class SignalsBlocked {};  // Python takes signals in threads of its own there.
#else
// While it lives, the caller's thread, and with it every thread that it starts, takes no signals,
// so that Python's main thread gets them. Faults excepted, which are the thread's own.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
      sigdelset(&signals, fault);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};
#endif

void name_this_thread([[maybe_unused]] int number) {
#ifndef _WIN32
  // Linux takes 15 characters, and refuses more.
  const std::string name = ("evenstride-" + std::to_string(number)).substr(0, 15);
#ifdef __APPLE__
  pthread_setname_np(name.c_str());
#else
  pthread_setname_np(pthread_self(), name.c_str());
#endif
#endif
}

// Returns the samples of a plan batch, in `buffer` unless they are 64 bits wide already.
std::span<const std::int64_t> samples_of(const PlannedBatches& batches, std::uint64_t batch,
                                         std::vector<std::int64_t>& buffer) {
  const std::uint64_t k = batches.first + batch * batches.stride;
  if (batches.offsets.empty() || k >= batches.offsets.size() - 1) {
    throw std::out_of_range("The plan has no batch " + std::to_string(k) + ": it has " +
                            std::to_string(batches.offsets.size()) + " offsets.");
  }
  const std::int64_t begin = batches.offsets[k];
  const std::int64_t end = batches.offsets[k + 1];
  return std::visit(
      [&](const auto& indices) -> std::span<const std::int64_t> {
        if (begin < 0 || end < begin || std::cmp_greater(end, indices.size())) {
          throw std::out_of_range("Batch " + std::to_string(k) + " of the plan must lie in its " +
                                  std::to_string(indices.size()) + " indices, but is [" +
                                  std::to_string(begin) + ", " + std::to_string(end) + ").");
        }
        const auto samples =
            indices.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        if constexpr (std::is_same_v<std::decay_t<decltype(samples[0])>, std::int64_t>) {
          return samples;
        } else {
          buffer.assign(samples.begin(), samples.end());
          return buffer;
        }
      },
      batches.indices);
}

}  // namespace

std::byte* MadeBatch::memory() const {
  return block ? reinterpret_cast<std::byte*>(block->address) : slab->memory;
}

MakeBatch collate_into(std::shared_ptr<const Collator> collator, std::shared_ptr<SlabPool> pool,
                       std::shared_ptr<GivenBlocks> given) {
  return [collator = std::move(collator), pool = std::move(pool), given = std::move(given)](
             std::uint64_t, std::span<const std::int64_t> samples, BatchRows& rows) {
    collator->look_up(samples, rows);
    auto made = std::make_shared<MadeBatch>();
    made->block = given->take(rows.layout.bytes);
    if (!made->block) {
      made->slab = pool->take(rows.layout.bytes);
    }
    collator->write(rows, made->memory());
    made->layout = rows.layout;
    return made;
  };
}

// What a thread reuses from batch to batch.
struct Workers::Scratch {
  std::vector<std::int64_t> samples;
  BatchRows rows;
};

Workers::Workers(MakeBatch make, PlannedBatches batches, std::shared_ptr<Delivery> delivery,
                 int num_threads)
    : make_(std::move(make)),
      batches_(batches),
      delivery_(std::move(delivery)),
      threads_(std::make_unique<std::vector<std::thread>>()) {
  if (num_threads < 1) {
    throw std::invalid_argument("`num_threads` must be at least 1, but is " +
                                std::to_string(num_threads) + ".");
  }
  threads_->reserve(static_cast<std::size_t>(num_threads));
  [[maybe_unused]] const SignalsBlocked blocked;
  for (int number = 0; number < num_threads; ++number) {
    try {
      threads_->emplace_back([this, number] {
        name_this_thread(number);
        work();
      });
    } catch (...) {
      if (threads_->empty()) {
        throw;
      }
      break;  // Fewer do the same.
    }
  }
}

Workers::~Workers() {
  if (!home_.is_here()) {
    [[maybe_unused]] const auto* const leaked = threads_.release();
    return;
  }
  delivery_->close();
  for (std::thread& thread : *threads_) {
    thread.join();
  }
}

void Workers::work() {
  Scratch scratch;
  while (const std::optional<std::uint64_t> batch = delivery_->claim()) {
    Delivery::Parcel made;
    std::exception_ptr failure;
    try {
      made = make(*batch, scratch);
    } catch (...) {
      failure = std::current_exception();
    }
    // Not in the handler, whose reference to the exception would end after the consumer has it:
    // ThreadSanitizer does not see how these are counted.
    if (failure) {
      delivery_->fail(*batch, std::move(failure));
    } else {
      delivery_->put(*batch, std::move(made));
    }
  }
}

Delivery::Parcel Workers::make(std::uint64_t batch, Scratch& scratch) const {
  return make_(batch, samples_of(batches_, batch, scratch.samples), scratch.rows);
}

}  // namespace evenstride
