// SPDX-License-Identifier: Apache-2.0
// Clients that take all the connections that they can get.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/flood.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class ConnectionsE2e : public DaemonTest {
 protected:
  int newest_checkpoint(const std::string& name) const {
    int newest = -1;
    std::error_code ignored;
    for (const auto& item : fs::directory_iterator(state_ / "jobs" / name / "checkpoints", ignored))
      if (fs::exists(item.path() / "manifest.json"))
        newest = std::max(newest, std::atoi(item.path().filename().c_str() + std::strlen("step-")));
    return newest;
  }
};

TEST_F(ConnectionsE2e, AFloodStopsNeitherTrainingNorCheckpointsNorLaterClients) {
  constexpr int kDescriptors = 600;
  launcher_ = {"prlimit", fmt::format("--nofile={0}:{0}", kDescriptors)};
  start();
  submit({.steps = 100'000, .checkpoint_interval = 50}, "long");
  ASSERT_TRUE(eventually(60s, [&] { return newest_checkpoint("long") >= 50; }));
  {
    Flood flood(address_);
    flood.connect(1100);
    ASSERT_GT(flood.size(), kDescriptors) << "this process may not open enough";
    EXPECT_TRUE(eventually(60s, [&] { return flood.refused() > flood.size() - kDescriptors; }))
        << flood.refused() << " of " << flood.size() << " refused";
    const auto open =
        std::distance(fs::directory_iterator(fmt::format("/proc/{}/fd", pids_[0])), {});
    EXPECT_LT(open, kDescriptors - 200) << "files could not be opened";
    const int before = newest_checkpoint("long");
    EXPECT_TRUE(eventually(60s, [&] { return newest_checkpoint("long") >= before + 100; }));
  }
  EXPECT_EQ(client({"status", "--wait", "20"}).exit_code, 0);
  submit({.steps = 5}, "later");
  EXPECT_EQ(client({"job", "cancel", "long"}).exit_code, 0);
  EXPECT_TRUE(reaches("later", "succeeded"));
  EXPECT_EQ(job("long")["state"], "cancelled");
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
