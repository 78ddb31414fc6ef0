// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/hooks/event_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <thread>

#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EventHookTest : public ::testing::Test {
 protected:
  static std::string state(const std::string& job, const std::string& state) {
    return R"({"job":")" + job + R"(","event":"state","state":")" + state +
           R"(","reason":"it \"is\" so"})" + "\n";
  }
  std::filesystem::path out() const { return folder_ / "out"; }
  std::filesystem::path spool() const { return folder_ / "hooks.json"; }
  std::unique_ptr<EventHook> hook(const std::string& command) {
    auto hook = std::make_unique<EventHook>(
        log_,
        EventHook::Options{.command = command, .spool = spool(), .limit = 2s, .back_off = 1ms});
    hook->start();
    return hook;
  }
  /// Appends what MESHLOOM_JOB and MESHLOOM_STATE are.
  std::string append() const {
    return "echo \"$MESHLOOM_JOB $MESHLOOM_STATE\" >> '" + out().string() + "'";
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream file(out());
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  static bool eventually(const std::function<bool()>& test) {
    for (int i = 0; i < 1000 && !test(); ++i) std::this_thread::sleep_for(10ms);
    return test();
  }
  std::string spooled() const {
    std::ifstream file(spool());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  bool has_taken_all() const {
    const auto size = std::filesystem::file_size(folder_ / "events.jsonl");
    return spooled().find("\"taken\":" + std::to_string(size)) != std::string::npos;
  }

  test::TempFolder folder_;
  EventLog log_{folder_ / "events.jsonl"};
};

TEST_F(EventHookTest, IsStartedForEachStateInOrderAndForNoNote) {
  log_.append(state("before", "queued"));  // there was no hook then
  const auto hooks = hook(append());
  ASSERT_TRUE(eventually([&] { return !spooled().empty(); }));
  for (int i = 0; i < 5; ++i) log_.append(state("a" + std::to_string(i), "running"));
  log_.append(R"({"job":"a","event":"note","note":"x"})"
              "\n");
  log_.append(R"({"job":"a","event":"watch","condition":"loss above 5"})"
              "\n");
  ASSERT_TRUE(eventually([&] { return lines().size() == 6; }));
  EXPECT_THAT(lines(), ElementsAre("a0 running", "a1 running", "a2 running", "a3 running",
                                   "a4 running", "a watch"));
}

TEST_F(EventHookTest, OneThatFailsIsStartedThreeTimesAndKeptForTheNextDaemon) {
  {
    const auto hooks = hook("");
    EXPECT_FALSE(std::filesystem::exists(spool()));
  }
  {
    const auto hooks = hook(append() + "; test $MESHLOOM_JOB != bad");
    ASSERT_TRUE(eventually([&] { return !spooled().empty(); }));
    log_.append(state("good", "running"));
    log_.append(state("bad", "failed"));
    log_.append(state("good", "succeeded"));
    ASSERT_TRUE(eventually([&] { return lines().size() == 5; }));
    EXPECT_THAT(lines(), ElementsAre("good running", "bad failed", "bad failed", "bad failed",
                                     "good succeeded"));
    ASSERT_TRUE(eventually([&] { return spooled().find("bad") != std::string::npos; }));
    // A stop before the last one has ended would leave that to the next daemon, too.
    ASSERT_TRUE(eventually([&] { return has_taken_all(); }));
  }
  log_.append(state("while away", "queued"));
  std::filesystem::remove(out());
  const auto hooks = hook(append());
  ASSERT_TRUE(eventually([&] { return lines().size() == 2; }));
  EXPECT_THAT(lines(), ElementsAre("bad failed", "while away queued"));
  ASSERT_TRUE(eventually([&] { return spooled().find("bad") == std::string::npos; }));
}

TEST_F(EventHookTest, AStopDoesNotWaitForItAndTheNextDaemonStartsItAgain) {
  {
    const auto hooks = hook(append() + "; sleep 60");
    ASSERT_TRUE(eventually([&] { return !spooled().empty(); }));
    log_.append(state("a", "running"));
    ASSERT_TRUE(eventually([&] { return lines().size() == 1; }));
    const auto begin = std::chrono::steady_clock::now();
    hooks->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1500ms);
  }
  const auto hooks = hook(append());
  ASSERT_TRUE(eventually([&] { return lines().size() == 2; }));
}

TEST_F(EventHookTest, ADaemonWithoutOneForgetsWhatWasLeft) {
  {
    const auto hooks = hook("false");
    ASSERT_TRUE(eventually([&] { return !spooled().empty(); }));
  }
  log_.append(state("a", "running"));
  { const auto none = hook(""); }
  const auto hooks = hook(append());
  ASSERT_TRUE(eventually([&] { return !spooled().empty(); }));
  log_.append(state("b", "running"));
  ASSERT_TRUE(eventually([&] { return !lines().empty(); }));
  EXPECT_THAT(lines(), ElementsAre("b running"));
}

}  // namespace
}  // namespace meshloom::control
