// A lane to a fake device, and batches for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/lane.h"
#include "cuda/pinned.h"
#include "fake_driver.h"
#include "samples.h"
#include "staged.h"

namespace evenstride::testing {

inline constexpr const char* kImage = "the kernel";

inline std::shared_ptr<const Event> record(Lane& lane, CuStream stream) {
  return lane.record(std::span(&stream, 1));
}

// A batch in a pinned slab, and memory of a device for it.
struct Ready {
  Corpus::Made made;
  std::shared_ptr<PinnedSlab> slab;
  CuAddress out = 0;
};

// A device, its lane, and batches for it.
class Setting {
 public:
  explicit Setting(FakeDriver::Options options = {})
      : fake(options), lane(fake.table(), 0, kImage), pool(PinnedPool::make(lane, 0, 0)) {}

  Ready make_ready(std::uint64_t most_samples = 8) {
    Ready ready{.made = corpus.make(random, most_samples), .slab = nullptr};
    while (ready.made.rows.layout.num_samples == 0) {
      ready.made = corpus.make(random, most_samples);
    }
    ready.slab = pool->take(ready.made.staged.bytes);
    corpus.write(ready.made, ready.slab->memory);
    ready.out = fake.allocate(ready.made.bytes());
    return ready;
  }

  std::shared_ptr<const Event> submit(const Ready& ready, const Event* after = nullptr,
                                      unsigned most_blocks = 0) {
    return lane.submit(ready.made.staged, ready.slab->memory, ready.out, std::span(&after, 1), 17,
                       most_blocks);
  }

  [[nodiscard]] bool has_arrived(const Ready& ready) const {
    std::vector<std::byte> memory(ready.made.bytes());
    fake.read(ready.out, memory.data(), memory.size());
    return corpus.matches(ready.made, memory);
  }

  FakeDriver fake;
  Lane lane;
  std::shared_ptr<PinnedPool> pool;
  Corpus corpus{1, 700};
  Random random{1};
};

}  // namespace evenstride::testing
