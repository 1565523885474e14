#include "core/cgroup.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace evenstride {
namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

double ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kNoLimit;
}

// "max 100000" or "150000 100000".
double limit_of_version_2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period ? ratio(quota, period) : kNoLimit;
}

// A quota of -1 is none.
double limit_of_version_1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? ratio(quota, period) : kNoLimit;
}

// Returns the tightest limit from the group at `path` under `mount` up to `mount` itself.
template <class LimitOf>
double tightest(const fs::path& mount, fs::path path, const LimitOf& limit_of) {
  double least = limit_of(mount);
  for (; path.has_relative_path() && path != path.parent_path(); path = path.parent_path()) {
    least = std::min(least, limit_of(mount / path.relative_path()));
  }
  return least;
}

bool is_listed(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

double processors_of_cgroups(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  double least = kNoLimit;
  // Lines of hierarchy:controllers:path; a path may have colons in it.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min({least, tightest(mounts, path, limit_of_version_2),
                        tightest(mounts / "unified", path, limit_of_version_2)});
    } else if (is_listed(controllers, "cpu")) {
      // The mount is named after its controllers, in either order, or linked to by each.
      for (const char* name : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
        least = std::min(least, tightest(mounts / name, path, limit_of_version_1));
      }
    }
  }
  return least;
}

}  // namespace evenstride
