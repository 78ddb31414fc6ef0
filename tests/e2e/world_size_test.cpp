// SPDX-License-Identifier: Apache-2.0
// Jobs that find another number of ranks after a restart.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

/// Many more than are done while a client asks how far a job is and then stops the daemon.
constexpr int kWorldSizeSteps = 2400;

class WorldSizeE2e : public DaemonTest {
 protected:
  static TinyJob long_job(const std::string& extra = "") {
    TinyJob job;
    job.steps = kWorldSizeSteps;
    job.extra = extra;
    return job;
  }
  /// Lets the job come to `step`, then stops the daemon in good order.
  void stop_at(const std::string& name, int step) {
    ASSERT_TRUE(reaches_step(name, step)) << job(name).dump(2);
    shut_down();
  }
  /// A job without a mesh that began on two ranks goes on on `ranks`, and has the losses of
  /// `whole`, which stayed on two.
  void check_goes_on(const std::string& name, int ranks, const std::map<int, double>& whole) {
    start(2);
    submit(long_job(), name);
    stop_at(name, 60);
    start(ranks);
    ASSERT_TRUE(reaches(name, "succeeded", 120s)) << job(name).dump(2);
    const auto after = step_losses(name);
    ASSERT_EQ(after.size(), std::size_t{kWorldSizeSteps});
    // All of what the first daemon computed, and some steps on the new mesh while rounding is
    // small.
    const int first = resumed_at(name);
    ASSERT_GE(first, 60);
    for (int step = 1; step <= std::min(first + 10, kWorldSizeSteps); ++step)
      EXPECT_NEAR(after.at(step), whole.at(step), 1e-5 * whole.at(step)) << "step " << step;
    const Json moved = job(name);
    EXPECT_EQ(moved["resolved"]["mesh"]["dp"], ranks);
    EXPECT_EQ(moved["attempt"], 2);
    const auto page = client({"job", "show", name});
    const auto changed = fmt::format("2 ranks have become {}", ranks);
    EXPECT_NE(page.output.find(changed), std::string::npos) << page.output;
    EXPECT_NE(page.output.find("not bit for bit"), std::string::npos) << page.output;
    EXPECT_NE(daemon_log().find(changed), std::string::npos);
    shut_down();
  }
  int resumed_at(const std::string& name) const {
    const std::string lead = "goes on from the checkpoint of step ";
    const Json shown = job(name);
    for (const auto& note : shown["notes"])
      if (const auto text = note.get<std::string>(); text.rfind(lead, 0) == 0)
        return std::stoi(text.substr(lead.size()));
    return -1;
  }
};

TEST_F(WorldSizeE2e, AJobWithoutAMeshGoesOnOnThreeRanksAndOnOne) {
  start(2);
  submit(long_job(), "whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 120s));
  const std::map<int, double> whole = step_losses("whole");
  shut_down();
  check_goes_on("three", 3, whole);
  check_goes_on("one", 1, whole);
}

TEST_F(WorldSizeE2e, AMeshThatDoesNotFitIsHeldUntilItsRanksAreBack) {
  start(2);
  submit(long_job("  mesh: {dp: 1, fsdp: 2}\n"), "two");
  submit(long_job("  mesh: {tp: 2}\n"), "never");
  stop_at("two", 20);
  start(3);
  ASSERT_TRUE(reaches("two", "held", 20s)) << job("two").dump(2);
  ASSERT_TRUE(reaches("never", "held", 20s)) << job("never").dump(2);
  const auto page = client({"job", "show", "two"});
  EXPECT_NE(page.output.find("needs 2 ranks, the daemon has 3"), std::string::npos) << page.output;
  const auto open = client({"job", "show", "never"});
  EXPECT_NE(open.output.find("needs a multiple of 2 ranks, the daemon has 3"), std::string::npos)
      << open.output;
  EXPECT_NE(daemon_log().find("needs 2 ranks, the daemon has 3"), std::string::npos);
  submit({}, "other");
  EXPECT_TRUE(reaches("other", "succeeded")) << "a held job does not block the queue";
  EXPECT_EQ(client({"job", "cancel", "never"}).exit_code, 0);
  EXPECT_EQ(job("never")["state"], "cancelled");
  EXPECT_EQ(job("two")["state"], "held");
  shut_down();
  start(2);
  EXPECT_TRUE(reaches("two", "succeeded", 120s)) << job("two").dump(2);
  EXPECT_EQ(job("two")["hold_reason"], "");
}

}  // namespace
}  // namespace meshloom::e2e
