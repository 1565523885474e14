// A loader and a model, played on a fake device: batches go through pinned slabs and a lane into
// blocks of either kind, and the model looks at what it was given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cuda/lane.h"
#include "cuda/pinned.h"
#include "cuda/ring.h"
#include "fake_driver.h"
#include "samples.h"
#include "staged.h"

namespace evenstride::testing {

// A caching allocator as torch's is: what was freed goes to the next who asks, at once, because all
// of it was allocated for work on one stream; but what other streams were given, too, only after
// these have come to where they were when it was freed.
class CachingAllocator {
 public:
  explicit CachingAllocator(FakeDriver& fake) : fake_(fake) {}

  CuAddress allocate(std::size_t bytes) {
    for (auto block = freed_.begin(); block != freed_.end(); ++block) {
      if (block->bytes >= bytes && is_done(*block)) {
        const CuAddress address = block->address;
        sizes_.emplace_back(address, block->bytes);
        freed_.erase(block);
        return address;
      }
    }
    const CuAddress address = fake_.allocate(bytes);
    sizes_.emplace_back(address, bytes);
    return address;
  }

  // `streams` are those for which record_stream was called.
  void free(CuAddress address, std::span<const CuStream> streams) {
    const auto found =
        std::ranges::find(sizes_, address, &std::pair<CuAddress, std::size_t>::first);
    Freed block{.address = address, .bytes = found->second, .users = {}};
    sizes_.erase(found);
    for (CuStream stream : streams) {
      block.users.push_back(fake_.mark(stream));
    }
    freed_.push_back(std::move(block));
  }

 private:
  struct Freed {
    CuAddress address;
    std::size_t bytes;
    std::vector<std::shared_ptr<const FakeStreams::Mark>> users;
  };

  [[nodiscard]] bool is_done(const Freed& block) const {
    return std::ranges::all_of(block.users,
                               [this](const auto& user) { return fake_.is_done(*user); });
  }

  FakeDriver& fake_;
  std::vector<std::pair<CuAddress, std::size_t>> sizes_;
  std::deque<Freed> freed_;
};

enum class Blocks : std::uint8_t { kTorch, kRing };

struct Play {
  Blocks blocks = Blocks::kTorch;
  std::size_t num_consumers = 1;
  std::size_t depth = 3;  // Batches that are submitted before the consumer takes the first.
  int num_batches = 12;
};

// Plays a pass on a lane of the fake device, and returns how often the model met other values than
// its batch's. It looks twice, with time between, on each of its streams.
class PlayedLoader {
 public:
  PlayedLoader(FakeDriver& fake, Lane& lane, const Corpus& corpus, const Play& play)
      : fake_(fake),
        lane_(lane),
        corpus_(corpus),
        play_(play),
        pool_(PinnedPool::make(lane, 2, 1 << 14)),
        torch_(fake) {
    lane.reserve(1 << 14);
    if (play_.blocks == Blocks::kRing) {
      ring_.emplace(lane, play.depth + 1, kBlockBytes);
    }
    for (std::size_t i = 0; i < play_.num_consumers; ++i) {
      consumers_.push_back(fake.make_stream());
    }
  }

  int play(Random& random) {
    std::deque<Submitted> submitted;
    for (int number = 0; number < play_.num_batches; ++number) {
      submitted.push_back(submit(random, number));
      if (submitted.size() > play_.depth) {
        consume(std::move(submitted.front()));
        submitted.pop_front();
      }
    }
    while (!submitted.empty()) {
      consume(std::move(submitted.front()));
      submitted.pop_front();
    }
    fake_.finish();
    return num_mismatches_;
  }

  static constexpr std::size_t kBlockBytes = 1 << 14;

 private:
  struct Submitted {
    Corpus::Made made;
    BlockRing::Block block;
    std::shared_ptr<const Event> event;
  };

  BlockRing::Block take_block() {
    if (ring_) {
      return ring_->lease(kBlockBytes).value();
    }
    return {.address = torch_.allocate(kBlockBytes),
            .capacity = kBlockBytes,
            .owner = nullptr,
            .user = nullptr};
  }

  Submitted submit(Random& random, int number) {
    Submitted batch{.made = corpus_.make(random, 6), .block = take_block(), .event = nullptr};
    const auto slab = pool_->take(batch.made.staged.bytes);
    corpus_.write(batch.made, slab->memory);
    const Event* const after = batch.block.user.get();
    batch.event = lane_.submit(batch.made.staged, slab->memory, batch.block.address,
                               std::span(&after, 1), static_cast<std::uint64_t>(number));
    slab->reader = batch.event;
    return batch;
  }

  void consume(Submitted batch) {
    const auto made = std::make_shared<const Corpus::Made>(std::move(batch.made));
    for (CuStream consumer : consumers_) {
      lane_.make_wait(consumer, *batch.event);
      for (int look = 0; look < 2; ++look) {
        fake_.enqueue(consumer, [this, made, address = batch.block.address] {
          std::vector<std::byte> memory(made->bytes());
          fake_.read(address, memory.data(), memory.size());
          num_mismatches_ += corpus_.matches(*made, memory) ? 0 : 1;
        });
      }
    }
    if (ring_) {
      batch.block.owner.reset();
      ring_->release(batch.block, consumers_);
    } else {
      torch_.free(batch.block.address, consumers_);
    }
  }

  FakeDriver& fake_;
  Lane& lane_;
  const Corpus& corpus_;
  Play play_;
  std::shared_ptr<PinnedPool> pool_;
  CachingAllocator torch_;
  std::optional<BlockRing> ring_;
  std::vector<CuStream> consumers_;
  int num_mismatches_ = 0;
};

}  // namespace evenstride::testing
