// A driver without a device, whose work runs as late, as early or as interleaved as is legal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "fake_streams.h"

namespace evenstride::testing {

inline constexpr CuResult kInvalidValue = 1;
inline constexpr CuResult kInvalidContext = 201;
inline constexpr CuResult kIllegalAddress = 700;
inline constexpr CuResult kLaunchOutOfResources = 701;
inline constexpr CuResult kLaunchFailed = 719;
inline constexpr CuResult kCaptureUnsupported = 900;

// Its streams hold their work back until the schedule, or a host that waits, has it run. A copy
// reads the host's memory when it runs, in pieces, between which other streams go on; so does a
// launch, of the only kernel there is, with its tiles and lanes in random order. Devices' memory is
// the host's, and is filled with kUnwritten when it is allocated. Wrong use is noted as a fault,
// and answered with an error. One at a time: functions of a table have no place for a pointer to
// it. A call in a process that was forked since ends that process. Thread-safe.
class FakeDriver {
 public:
  struct Options {
    FakeSchedule schedule = FakeSchedule::kPrompt;
    std::uint64_t seed = 0;
    int num_devices = 2;
    int num_multiprocessors = 64;
    int version = 13000;
    bool allows_any_output = false;  // And not only memory of a device.
  };

  explicit FakeDriver(Options options);
  FakeDriver() : FakeDriver(Options{}) {}
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // Its calls are logged under the names that the driver's documentation has for them.
  [[nodiscard]] const Driver& table() const;

  // Has the nth call of a function from now on fail. After errors that contexts do not recover
  // from, every later call fails likewise.
  void fail(const std::string& call, CuResult result, std::size_t nth = 1);

  [[nodiscard]] std::vector<std::string> calls() const;
  [[nodiscard]] std::size_t count(const std::string& call) const;
  void forget_calls();

  // Returns a sentence for each wrong use up to now.
  [[nodiscard]] std::vector<std::string> faults() const;

  [[nodiscard]] std::size_t num_allocated() const;  // Blocks of devices' memory.
  [[nodiscard]] std::size_t num_pinned() const;     // Ranges of the host's memory.
  [[nodiscard]] static std::size_t num_contexts();  // On this thread's stack.

  // Whether somebody captures a graph in global mode. Then it is wrong use to call what spoils it,
  // except, in most cases, by threads in relaxed mode.
  void set_capturing(bool is_capturing);
  [[nodiscard]] static int capture_mode();  // Of this thread.

  // What others do with the devices, beside the table and its log.
  [[nodiscard]] CuStream make_stream(int ordinal = 0);
  void enqueue(CuStream stream, std::function<void()> work);
  [[nodiscard]] bool is_done(const FakeStreams::Mark& mark) const;
  [[nodiscard]] std::shared_ptr<const FakeStreams::Mark> mark(CuStream stream);
  [[nodiscard]] CuAddress allocate(std::size_t bytes);
  // Copies device memory, which must be allocated, into `to`.
  void read(CuAddress address, std::byte* to, std::size_t bytes) const;
  // Runs all work to its end.
  void finish();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace evenstride::testing
