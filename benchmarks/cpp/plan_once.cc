// Plans a few epochs and nothing else: for a profiler, and for the peak memory of a fresh process.
//
//   plan_once [samples=1000000] [composition=shuffle] [threads=1] [replicas=1] [buckets=6]
//   [plans=1]
//
// Prints the time of each plan, the least of them beside the time of a copy of as many int64 into
// memory that has been touched, and the peak of memory beyond the lengths.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "inputs.h"
#include "peak_memory.h"

namespace evenstride {
namespace {

struct Request {
  std::uint64_t samples = 1'000'000;
  Composition composition = Composition::kShuffle;
  std::uint64_t threads = 1;
  std::uint64_t replicas = 1;
  std::uint64_t buckets = 6;
  std::uint64_t plans = 1;
};

Request parse(std::span<char*> arguments) {
  Request request;
  const std::pair<std::string_view, std::uint64_t*> numbers[] = {{"samples", &request.samples},
                                                                 {"threads", &request.threads},
                                                                 {"replicas", &request.replicas},
                                                                 {"buckets", &request.buckets},
                                                                 {"plans", &request.plans}};
  for (const std::string_view argument : arguments) {
    const std::size_t equals = std::min(argument.find('='), argument.size() - 1);
    const std::string_view name = argument.substr(0, equals);
    const std::string_view value = argument.substr(equals + 1);
    if (name == "composition") {
      request.composition = parse_composition(value);
      continue;
    }
    const auto* const known =
        std::ranges::find(numbers, name, [](const auto& n) { return n.first; });
    if (known == std::end(numbers) ||
        std::from_chars(value.data(), value.data() + value.size(), *known->second).ec !=
            std::errc()) {
      throw std::invalid_argument("no such argument: " + std::string(argument));
    }
  }
  return request;
}

template <class Work>
double seconds_of(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Of at most 100 million numbers, since more would not fit beside the plan.
double seconds_of_copy(std::uint64_t samples) {
  const auto copied = static_cast<std::size_t>(std::min<std::uint64_t>(samples, 100'000'000));
  std::vector<std::int64_t> from(copied, 1);
  std::vector<std::int64_t> to(copied, 2);
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    least = std::min(least, seconds_of([&] {
                       std::memcpy(to.data(), from.data(), copied * sizeof(std::int64_t));
                     }));
  }
  return least * static_cast<double>(samples) / static_cast<double>(copied);
}

std::vector<std::uint64_t> edges_for(std::uint64_t buckets,
                                     std::span<const std::uint16_t> lengths) {
  if (buckets == 6) {
    return given_edges();
  }
  std::vector<std::uint16_t> sorted(
      lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(
                                             std::min<std::size_t>(lengths.size(), 1'000'000)));
  std::ranges::sort(sorted);
  std::vector<std::uint64_t> edges;
  for (std::uint64_t k = 1; k < buckets; ++k) {
    edges.push_back(sorted[static_cast<std::size_t>(sorted.size() * k / buckets)]);
  }
  const auto rest = std::ranges::unique(edges);
  edges.erase(rest.begin(), rest.end());
  return edges;
}

void plan(const Request& request) {
  const auto lengths = lognormal_lengths(static_cast<std::size_t>(request.samples));
  PlanOptions options;
  options.limits = given_limits();
  options.composition = request.composition;
  options.jitter = fixed_jitter(0.25);
  options.num_threads = static_cast<int>(request.threads);
  std::vector<std::uint64_t> edges = edges_for(request.buckets, lengths);
  const auto samples = static_cast<double>(request.samples);
  const PeakMemory peak;
  std::optional<Planner> planner;
  std::printf("survey %.4f s\n", seconds_of([&] {
                planner.emplace(std::span<const std::uint16_t>(lengths), std::move(edges), options);
              }));
  double least = 1e9;
  for (std::uint64_t epoch = 0; epoch < request.plans; ++epoch) {
    std::size_t batches = 0;
    const std::clock_t before = std::clock();
    const double seconds = seconds_of([&] {
      const EpochPlan made = planner->plan(epoch, {.num_replicas = request.replicas});
      batches = made.buckets.size();
    });
    least = std::min(least, seconds);
    std::printf(
        "plan %.4f s, cpu %.4f s, %.2f ns a sample, %zu batches, peak %.3f bytes a sample of "
        "%.3f\n",
        seconds, static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC,
        seconds / samples * 1e9, batches, static_cast<double>(peak.bytes().value_or(0)) / samples,
        12.5 + 16 * static_cast<double>(batches) / samples);
  }
  const double copy = seconds_of_copy(request.samples);
  std::printf("least %.4f s, %.2f ns a sample; copy %.4f s; ratio %.2f\n", least,
              least / samples * 1e9, copy, least / copy);
}

}  // namespace
}  // namespace evenstride

int main(int argc, char** argv) {
  try {
    evenstride::plan(evenstride::parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1)));
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
