// SPDX-License-Identifier: Apache-2.0
// What is told of jobs to other programs: files for TensorBoard, waits, events, hooks, conditions,
// and where the time goes, over kills.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "daemon/events/event_record.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SeenE2e : public DaemonTest {
 protected:
  /// The losses of training that TensorBoard shows of a folder, by step; each step once.
  static std::map<std::int64_t, float> shown_losses(const fs::path& folder) {
    std::set<fs::path> files;
    for (const auto& item : fs::directory_iterator(folder)) files.insert(item.path());
    std::map<std::int64_t, float> losses;
    for (const fs::path& file : files) {
      const std::string bytes = read_file(file);
      for (const events::Event& event : events::read_events(bytes).events) {
        if (event.session_log().status() == events::SessionLog::START)
          losses.erase(losses.lower_bound(event.step()), losses.end());
        for (const auto& value : event.summary().value())
          if (value.tag() == "train/loss") {
            EXPECT_TRUE(losses.emplace(event.step(), value.simple_value()).second)
                << "step " << event.step() << " twice";
          }
      }
    }
    return losses;
  }
  /// Returns the losses of metrics.jsonl in float32.
  std::map<std::int64_t, float> losses_of(const std::string& name) const {
    std::map<std::int64_t, float> losses;
    for (const auto& [step, loss] : step_losses(name)) losses[step] = static_cast<float>(loss);
    return losses;
  }
  fs::path events_of(const std::string& name) const {
    return state_ / "jobs" / name / "tensorboard";
  }
  void expect_adds_up(const Json& shown, double wall) const {
    double total = shown["goodput"]["productive"];
    for (const auto& [cause, seconds] : shown["goodput"]["lost"].items())
      total += seconds.get<double>();
    EXPECT_NEAR(total, wall, 0.01 * wall + 0.25) << shown["goodput"].dump();
  }
};

TEST_F(SeenE2e, EventFilesAreTheMetricsOverKillsAndElsewhereToo) {
  TinyJob long_one;
  long_one.steps = 900;
  long_one.checkpoint_interval = 100;
  long_one.validation_interval = 300;
  start();
  const auto begin = std::chrono::steady_clock::now();
  submit(long_one, "a");
  Process copy({test::program_folder() + "/meshloom", "--address", address_, "job", "tensorboard",
                "a", "--out", folder_ / "copy", "--follow"},
               folder_ / "copy.log");
  Process waits({test::program_folder() + "/meshloom", "--address", address_, "job", "wait", "a",
                 "--timeout", "120"},
                folder_ / "waits.log");
  for (const int step : {150, 350, 550}) {
    ASSERT_TRUE(reaches_step("a", step));
    kill_everything();
    start(2, {"--listen", address_});
  }
  ASSERT_TRUE(reaches("a", "succeeded", 120s));
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(waits.wait(20s), 0) << read_file(folder_ / "waits.log");
  EXPECT_EQ(copy.wait(20s), 0) << read_file(folder_ / "copy.log");
  const auto losses = losses_of("a");
  ASSERT_EQ(losses.size(), 900u);
  EXPECT_EQ(shown_losses(events_of("a")), losses);
  EXPECT_EQ(shown_losses(folder_ / "copy/a"), losses);
  int files = 0;
  for ([[maybe_unused]] const auto& file : fs::directory_iterator(events_of("a"))) ++files;
  EXPECT_EQ(files, 4) << "one an attempt";
  expect_adds_up(job("a"), wall.count());
  EXPECT_GT(job("a")["goodput"]["lost"]["recovery"].get<double>(), 0.0);
  EXPECT_THAT(client({"job", "show", "a"}).output, HasSubstr("goodput"));

  // Once more, at once, into the same folder; and none where none is wanted.
  ASSERT_EQ(client({"job", "tensorboard", "a", "--out", folder_ / "copy"}).exit_code, 0);
  EXPECT_EQ(shown_losses(folder_ / "copy/a"), losses);
  submit({.extra = "  metrics: {tensorboard: false}\n"}, "none");
  submit({.steps = 10, .extra = "  metrics: {interval: 5}\n"}, "some");
  ASSERT_TRUE(reaches("some", "succeeded"));
  EXPECT_FALSE(fs::exists(events_of("none")));
  EXPECT_EQ(shown_losses(events_of("some")).size(), 2u);
  shut_down();
}

TEST_F(SeenE2e, AWaitTellsWhatBecameOfAJob) {
  start();
  submit({}, "a");
  EXPECT_EQ(client({"job", "wait", "a", "--for", "step:5"}).exit_code, 0);
  EXPECT_EQ(client({"job", "wait", "a", "--for", "loss:100"}).exit_code, 0);
  EXPECT_EQ(client({"job", "wait", "a"}).exit_code, 0);
  EXPECT_EQ(client({"job", "wait", "a", "--for", "step:1000"}).exit_code, 1);
  EXPECT_EQ(client({"job", "wait", "none"}).exit_code, 1);
  EXPECT_EQ(client({"job", "wait", "a", "--for", "never"}).exit_code, 2);
  submit_endless("dp2", "b", 1);
  EXPECT_EQ(client({"job", "wait", "a", "b", "--timeout", "0.3"}).exit_code, 124);
  EXPECT_EQ(client({"job", "wait", "a", "b", "--for", "loss:0", "--timeout", "0.3"}).exit_code,
            124);
  cancel("b");
  EXPECT_EQ(client({"job", "wait", "a", "b"}).exit_code, 4);
  EXPECT_EQ(client({"job", "wait", "a", "b", "--for", "ended"}).exit_code, 0);
  shut_down();
}

TEST_F(SeenE2e, EventsAndHooksTellOfAllJobsAndAConditionEndsOne) {
  const fs::path hooks = folder_ / "hooks";
  const std::string hook =
      fmt::format("cat > /dev/null; echo $MESHLOOM_JOB $MESHLOOM_STATE >> '{}'", hooks.string());
  start(2, {"--on-event", hook});
  submit_endless("dp2", "endless", 1);
  cancel("endless");
  TinyJob watched;
  watched.steps = 5000;
  const std::string file = write_job(watched);
  ASSERT_EQ(client({"job", "submit", file, "--name", "watched", "--set",
                    "training.watch=[{loss_above: 0.0, cancel: true}]"})
                .exit_code,
            0);
  ASSERT_TRUE(reaches("watched", "cancelled"));
  EXPECT_LT(job("watched")["step"].get<int>(), 5000);
  const auto events = client({"events"});
  ASSERT_EQ(events.exit_code, 0) << events.errors;
  std::vector<std::string> states;
  std::istringstream lines(events.output);
  std::int64_t revision = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    EXPECT_GT(event["revision"].get<std::int64_t>(), revision);
    revision = event["revision"];
    if (event["job"] != "watched" || event["event"] == "note") continue;
    states.push_back(event["event"] == "state" ? event["state"].get<std::string>()
                                               : event["condition"].get<std::string>());
  }
  EXPECT_THAT(states, ElementsAre("queued", "preparing", "running", "loss above 0", "cancelling",
                                  "cancelled"));
  EXPECT_EQ(client({"events", "--after", std::to_string(revision)}).output, "");
  ASSERT_TRUE(eventually(20s, [&] {
    return read_file(hooks).find("watched cancelled") != std::string::npos;
  })) << read_file(hooks);
  EXPECT_THAT(read_file(hooks),
              HasSubstr("watched queued\nwatched preparing\nwatched running\n"
                        "watched watch\nwatched cancelling\nwatched cancelled\n"));
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
