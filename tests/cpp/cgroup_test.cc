#include "core/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace evenstride {
namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// A folder that stands for the root of a system.
class Cgroups : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("cgroup_test_") + test->name());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void in_groups(const std::string& text) const { write("proc/self/cgroup", text); }
  [[nodiscard]] double processors() const { return processors_of_cgroups(root_); }

  fs::path root_;
};

TEST_F(Cgroups, NothingToReadIsNoLimit) {
  EXPECT_EQ(processors(), kNoLimit);
  in_groups("0::/a\n");
  EXPECT_EQ(processors(), kNoLimit);
}

TEST_F(Cgroups, TheLimitIsTheQuotaOverThePeriod) {
  in_groups("0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(processors(), 1.5);
}

TEST_F(Cgroups, MaxIsNoLimit) {
  in_groups("0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(processors(), kNoLimit);
}

TEST_F(Cgroups, TheTightestOfAGroupAndItsParentsHolds) {
  in_groups("0::/a/b.slice/c:d\n");
  write("sys/fs/cgroup/a/b.slice/c:d/cpu.max", "800000 100000\n");
  write("sys/fs/cgroup/a/b.slice/cpu.max", "50000 100000\n");
  write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/other/cpu.max", "1000 100000\n");
  EXPECT_EQ(processors(), 0.5);
}

TEST_F(Cgroups, AContainerSeesItsOwnGroupAsTheOutermost) {
  in_groups("0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(processors(), 2.0);
  in_groups("0::/docker/0123456789abcdef\n");
  EXPECT_EQ(processors(), 2.0);
  in_groups("0::/../../beside\n");
  EXPECT_EQ(processors(), 2.0);
}

TEST_F(Cgroups, VersionOneHasFilesOfItsOwn) {
  in_groups(
      "12:cpuset:/x\n"
      "4:cpu,cpuacct:/a/b\n"
      "1:name=systemd:/a/b\n");
  write("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us", "1000\n");
  write("sys/fs/cgroup/cpuset/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 3.0);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 3.0);
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "25000\n");
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processors(), 0.25);
}

TEST_F(Cgroups, BothVersionsAtOnceBothHold) {
  in_groups("3:cpu:/a\n0::/b\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
  EXPECT_EQ(processors(), 2.0);
}

TEST_F(Cgroups, WhatIsNoNumberIsNoLimit) {
  in_groups("nonsense\n0::/a\n");
  for (const char* text : {"", "\n", "100000", "none none", "0 100000", "100000 0", "-5 100000"}) {
    write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(processors(), kNoLimit) << text;
  }
}

}  // namespace
}  // namespace evenstride
