// Random lengths that have been composed into buckets, for the tests of what follows.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/buckets.h"
#include "core/cells.h"
#include "core/compose.h"
#include "core/random.h"
#include "core/settle.h"
#include "core/threads.h"
#include "samples.h"

namespace evenstride::testing {

// What fixes a composition.
struct Problem {
  Values lengths;
  Values edges;
  ComposeOptions options;
  Admission admission;
  Stream stream{0};

  // Samples above max_length share no batch.
  void limit_admission() {
    options.limits.admitted_end = end_of_admitted(options.limits, admission.max_length);
  }

  [[nodiscard]] Classes classes() const {
    return {edges, options.limits, admission, lengths.size()};
  }
};

inline Problem random_problem(Random& random, std::size_t most_samples) {
  Problem problem;
  const std::uint64_t longest = random.between(1, 60);
  problem.lengths = random_lengths(random, random.between(1, most_samples), longest);
  problem.edges = random_edges(random, 5, longest);
  problem.options.limits = random_limits(random, longest);
  problem.options.window = random.between(1, 40);
  problem.stream = Stream(random.next());
  if (random.one_in(3)) {
    problem.admission.max_length = longest - longest / 8;
    problem.admission.too_long = random.one_in(2) ? TooLong::kAlone : TooLong::kDrop;
    problem.limit_admission();
  }
  problem.lengths.push_back(1);  // One at least is admitted.
  return problem;
}

template <class Entry>
class Composed {
 public:
  explicit Composed(const Problem& problem, int num_threads = 1)
      : classes_(problem.classes()), team_(num_threads) {
    found_ =
        survey(view(problem.lengths), classes_, problem.options.limits, problem.admission, team_);
    buckets = compose<Entry>(view(problem.lengths), classes_, found_, problem.options,
                             problem.stream, workspace_, team_);
  }

  std::vector<FilledBucket<Entry>> buckets;

  [[nodiscard]] const Classes& classes() const { return classes_; }
  [[nodiscard]] const Survey& found() const { return found_; }
  [[nodiscard]] Team& team() { return team_; }

  [[nodiscard]] std::vector<BucketRange> ranges() const {
    std::vector<BucketRange> ranges;
    for (const FilledBucket<Entry>& bucket : buckets) {
      ranges.push_back({.batches = bucket.batches.size() + bucket.alone.size(),
                        .samples = bucket.samples + bucket.alone.size()});
    }
    return ranges;
  }

 private:
  Classes classes_;
  Survey found_;
  Workspace workspace_;
  Team team_;
};

}  // namespace evenstride::testing
