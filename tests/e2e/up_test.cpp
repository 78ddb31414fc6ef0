// SPDX-License-Identifier: Apache-2.0
// Daemons that `meshloom up` starts: found without a setting, refused at once, ended alone.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

/// Processes that know a folder, which those of a daemon and of its starts do.
std::vector<pid_t> processes_that_know(const fs::path& folder) {
  std::vector<pid_t> found;
  for (const auto& item : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(item.path().filename().c_str());
    if (pid <= 0 || pid == ::getpid() || !is_alive(pid)) continue;
    if (read_file(item.path() / "cmdline").find(folder.string()) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

class UpE2e : public DaemonTest {
 protected:
  UpE2e() {
    ::setenv("XDG_STATE_HOME", (folder_ / "home").c_str(), 1);
    ::unsetenv("MESHLOOM_ADDRESS");
    ::unsetenv("MESHLOOM_STATE_DIR");
    other_ = folder_ / "other";
    // It outlives a test that is killed, and then ends what the test has started. What it ends it
    // is told by its environment: its arguments are none of a daemon's.
    ::setenv("MESHLOOM_TEST_STATES", (state_.string() + "\n" + other_.string()).c_str(), 1);
    const std::string command = fmt::format(
        "cat >/dev/null; printf '%s\\n' \"$MESHLOOM_TEST_STATES\" | while read -r state; do "
        "'{}' down --force --state-dir \"$state\" >/dev/null 2>&1; done",
        test::program("meshloom"));
    guard_ = ::popen(command.c_str(), "we");
  }
  ~UpE2e() override {
    if (HasFailure()) fmt::print("--- logs/daemon.log\n{}---\n", log());
    ::pclose(guard_);
  }

  std::string log() const { return read_file(state_ / "logs/daemon.log"); }

  /// The program from a folder where nothing is.
  CommandResult meshloom(const Arguments& arguments,
                         const Arguments& before = {"env", "-C", "/"}) const {
    Arguments all = before;
    all.push_back(test::program("meshloom"));
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(all, 60s);
  }
  Arguments up_arguments(int ranks, const fs::path& state, const Arguments& more) const {
    Arguments all{"up",           "-n",          std::to_string(ranks), "--data-dir",
                  data_.string(), "--state-dir", state.string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Starts a daemon, by default on a free port; what it tells.
  Json up(int ranks, const fs::path& state, Arguments more = {"--listen", "127.0.0.1:0"}) {
    more.emplace_back("--json");
    const CommandResult result = meshloom(up_arguments(ranks, state, more));
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    const Json told = Json::parse(result.output, nullptr, false);
    EXPECT_TRUE(told.is_object()) << result.output;
    if (state == state_ && told.is_object()) address_ = told["address"];
    return told;
  }
  std::vector<pid_t> ranks_of(const fs::path& state) const {
    const auto status =
        Json::parse(meshloom({"status", "--json", "--state-dir", state.string()}).output);
    std::vector<pid_t> pids;
    for (const auto& worker : status["workers"]) pids.push_back(worker["pid"]);
    return pids;
  }
  /// kill -9 of mpirun and every rank.
  void kill_daemon(const fs::path& state, pid_t mpirun) const {
    const std::vector<pid_t> ranks = ranks_of(state);
    ASSERT_FALSE(ranks.empty());
    ::kill(mpirun, SIGKILL);
    for (const pid_t pid : ranks) ::kill(pid, SIGKILL);
    EXPECT_TRUE(eventually(10s, [&] { return !is_alive(mpirun); }));
    for (const pid_t pid : ranks) EXPECT_TRUE(eventually(10s, [&] { return !is_alive(pid); }));
  }
  void expect_none_left() const {
    EXPECT_TRUE(eventually(5s, [&] { return processes_that_know(state_).empty(); }))
        << fmt::format("{}", fmt::join(processes_that_know(state_), " "));
  }

  fs::path other_;

 private:
  FILE* guard_ = nullptr;
};

TEST_F(UpE2e, ClientsFindItAndDownSavesTheJobThatTheNextOneGoesOnWith) {
  const Json told = up(2, state_);
  EXPECT_EQ(told["ranks"], 2);
  EXPECT_EQ(told["state_dir"], state_.string());
  const auto status = meshloom({"status"});
  EXPECT_EQ(status.exit_code, 0) << status.errors;
  EXPECT_NE(status.output.find("at " + address_ + ": serving"), std::string::npos) << status.output;
  EXPECT_NE(status.output.find("started by meshloom up"), std::string::npos) << status.output;
  const auto with_slash = meshloom({"status", "--state-dir", state_.string() + "/"});
  EXPECT_NE(with_slash.output.find("at " + address_ + ": serving"), std::string::npos)
      << with_slash.output;
  const auto in_folder = meshloom(
      {"status"},
      {"env", "-C", folder_.string(), "MESHLOOM_STATE_DIR=state", "XDG_STATE_HOME=/nowhere"});
  EXPECT_EQ(in_folder.exit_code, 0) << in_folder.errors;

  submit_endless("dp2", "long", 3);
  const auto down = meshloom({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.errors;
  EXPECT_NE(down.output.find("has stopped"), std::string::npos) << down.output;
  expect_none_left();
  EXPECT_FALSE(fs::exists(state_ / "address"));
  EXPECT_FALSE(fs::exists(state_ / "launch.json"));
  EXPECT_NE(log().find("job long: stopped at step "), std::string::npos) << log();
  const auto gone = meshloom({"status", "--state-dir", state_.string()});
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_NE(gone.errors.find("no daemon runs on state dir"), std::string::npos) << gone.errors;

  up(2, state_);
  EXPECT_TRUE(reaches("long", "running"));
  cancel("long");
  EXPECT_EQ(meshloom({"down", "--json"}).exit_code, 0);
}

TEST_F(UpE2e, WhatItPrintsNamesTheNextCommand) {
  const auto result =
      meshloom(up_arguments(1, state_, {"--listen", "127.0.0.1:0", "--", "--threads", "2"}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  for (const char* text : {"serves at 127.0.0.1:", "1 rank with 2 threads", "meshloom job submit",
                           "meshloom down", "logs/daemon.log"})
    EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
  EXPECT_EQ(result.errors, "");
}

// Mistakes are found before anything is started.
TEST_F(UpE2e, WhatCannotStartIsRefusedInOneLineAtOnce) {
  const std::string state = state_.string(), data = data_.string();
  const std::string beside = (folder_ / "dat").string(), file = write_text("file", "");
  const std::string wrong_config = write_text("daemon.yaml", "log_lvel: info\n");
  struct Case {
    Arguments arguments;
    const char* text;
    Arguments before = {"env", "-C", "/"};
    int exit_code = 2;
  };
  const Case cases[] = {
      {{"--data-dir", beside}, "no such folder; did you mean"},
      {{"-n", "0"}, "expected a whole number, 1 to 1024"},
      {{"-n", "two"}, "expected a whole number"},
      {{"--ranks", "5000"}, "expected a whole number, 1 to 1024"},
      {{"--state-dir", file}, "is no folder"},
      {{"--state-dir", "/proc/state"}, "/proc/state cannot be made", {"env", "-C", "/"}, 1},
      {{"--listen", "nonsense"}, "expected host:port"},
      {{"--address", "127.0.0.1:7000"}, "up takes --listen, not --address"},
      {{"--listen", "0.0.0.0:0"}, "neither encrypted nor authenticated"},
      {{"--listen", "203.0.113.1:7000"}, "add --insecure where the network is closed"},
      {{"--threads", "0"}, "--threads is 0"},
      {{"--config", "/does/not/exist.yaml"}, "cannot open /does/not/exist.yaml"},
      {{"--config", wrong_config}, "did you mean \"log_level\"?"},
      {{"--data-dr", data}, "unknown option --data-dr; did you mean --data-dir?"},
      {{"--", "--thrads", "2"}, "unknown option --thrads; did you mean --threads?"},
      {{"--", "--help"}, "start nothing"},
      {{"folder"}, "did you mean --data-dir folder?"},
      {{"-n", "2"}, "mpirun is not on PATH", {"env", "PATH=" + data}},
  };
  for (const Case& item : cases) {
    Arguments arguments{"up", "--state-dir", state};
    // The options of the whole program are given once.
    if (item.arguments[0] == "--state-dir") arguments = {"up"};
    arguments.insert(arguments.end(), item.arguments.begin(), item.arguments.end());
    const auto begin = std::chrono::steady_clock::now();
    const auto result = meshloom(arguments, item.before);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << item.text;
    EXPECT_EQ(result.exit_code, item.exit_code) << item.text << "\n" << result.errors;
    EXPECT_NE(result.errors.find(item.text), std::string::npos) << item.text << "\n"
                                                                << result.errors;
    EXPECT_EQ(result.output, "") << item.text;
    // Of a wrong line, where help is.
    const auto lines = std::count(result.errors.begin(), result.errors.end(), '\n');
    EXPECT_LE(lines, result.errors.find("--help\"") == std::string::npos ? 1 : 2) << result.errors;
  }
  EXPECT_FALSE(fs::exists(state_));
  const auto down = meshloom({"down", "--address", "127.0.0.1:7000"});
  EXPECT_EQ(down.exit_code, 2);
  EXPECT_EQ(down.errors, "meshloom: down takes --state-dir, not --address\n");
  expect_none_left();
}

TEST_F(UpE2e, AStateDirOfAnotherAccountIsRefused) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directories(state_);
  ASSERT_EQ(::chown(state_.c_str(), 65534, 65534), 0);
  const auto result = meshloom(up_arguments(1, state_, {}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("and this is root: name another folder"), std::string::npos)
      << result.errors;
  EXPECT_TRUE(fs::is_empty(state_));
  const auto down = meshloom({"down", "--state-dir", state_.string()});
  EXPECT_EQ(down.exit_code, 1);
  EXPECT_NE(down.errors.find("belongs to another account"), std::string::npos) << down.errors;
}

TEST_F(UpE2e, AnAddressThatIsNamedMustBeFreeAndTheDefaultOneNeedNot) {
  const std::string first = up(1, state_, {})["address"];
  const std::string second = up(1, other_, {})["address"];
  EXPECT_NE(first, second);
  EXPECT_EQ(meshloom({"down", "--state-dir", other_.string()}).exit_code, 0);
  const auto named = meshloom(up_arguments(1, other_, {"--listen", first}));
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_NE(named.errors.find("cannot listen on " + first), std::string::npos) << named.errors;
  EXPECT_NE(named.errors.find("the port is taken"), std::string::npos) << named.errors;
  const auto elsewhere =
      meshloom(up_arguments(1, other_, {"--listen", "192.0.2.1:7000", "--insecure"}));
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_NE(elsewhere.errors.find("is not one of this host"), std::string::npos)
      << elsewhere.errors;
  EXPECT_EQ(elsewhere.errors.find("is taken"), std::string::npos) << elsewhere.errors;
  const auto again = meshloom(up_arguments(2, state_, {}));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.errors.find("already, at " + first), std::string::npos) << again.errors;
  EXPECT_EQ(std::count(again.errors.begin(), again.errors.end(), '\n'), 1) << again.errors;
  EXPECT_EQ(meshloom({"status"}).exit_code, 0) << "the first one still serves";
}

TEST_F(UpE2e, OneThatDiesAtItsStartShowsTheEndOfItsLog) {
  const auto result =
      meshloom(up_arguments(2, state_, {"--listen", "127.0.0.1:0", "--", "--world-size", "3"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("the daemon ended before it served; the end of"), std::string::npos);
  EXPECT_NE(result.errors.find("--world-size is 3, but 2 ranks were started"), std::string::npos)
      << result.errors;
  EXPECT_EQ(result.errors.find("non-zero"), std::string::npos) << result.errors;
  EXPECT_FALSE(fs::exists(state_ / "launch.json"));
  expect_none_left();
}

TEST_F(UpE2e, CtrlCEndsWhatWasBegun) {
  for (const int delay : {50, 150, 400, 800}) {
    Arguments all{test::program("meshloom")};
    for (const auto& word : up_arguments(2, state_, {"--listen", "127.0.0.1:0"}))
      all.push_back(word);
    Process process(all, folder_ / "up.log");
    sleep_ms(delay);
    process.signal(SIGINT);
    const auto code = process.wait(10s);
    ASSERT_TRUE(code.has_value()) << delay;
    // It may have served before.
    if (*code == 0)
      EXPECT_EQ(meshloom({"down", "--state-dir", state_.string()}).exit_code, 0);
    else
      EXPECT_EQ(*code, 130) << delay << read_file(folder_ / "up.log");
    expect_none_left();
    EXPECT_FALSE(fs::exists(state_ / "launch.json")) << delay;
  }
}

TEST_F(UpE2e, ADaemonWhoseUpWasKilledIsFoundAndEnded) {
  {
    Arguments all{test::program("meshloom")};
    for (const auto& word : up_arguments(2, state_, {"--listen", "127.0.0.1:0"}))
      all.push_back(word);
    Process process(all, folder_ / "up.log");
    // The record is there before mpirun is executed, where the end of `up` is the launch's own.
    ASSERT_TRUE(eventually(10s, [&] { return fs::exists(state_ / "address"); }));
    process.signal(SIGKILL);
    process.wait(5s);
  }
  const auto second = meshloom(up_arguments(2, state_, {}));
  EXPECT_EQ(second.exit_code, 1) << second.output;
  EXPECT_NE(second.errors.find("meshloom down ends it"), std::string::npos) << second.errors;
  EXPECT_EQ(meshloom({"down", "--state-dir", state_.string()}).exit_code, 0);
  expect_none_left();
}

// Another daemon may have the port by then, and another process the number.
TEST_F(UpE2e, WhatAKilledOneLeftIsSeenThroughAndDownEndsNothingElse) {
  const Json told = up(2, state_);
  const std::string address = told["address"];
  kill_daemon(state_, told["pid"]);
  ASSERT_TRUE(fs::exists(state_ / "address"));
  const auto status = meshloom({"status", "--state-dir", state_.string()});
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_NE(status.errors.find("has ended; its log is"), std::string::npos) << status.errors;

  up(1, other_, {"--listen", address});
  EXPECT_EQ(meshloom({"status", "--state-dir", state_.string()}).exit_code, 3);
  const auto down = meshloom({"down", "--state-dir", state_.string()});
  EXPECT_EQ(down.exit_code, 0) << down.errors;
  EXPECT_NE(down.output.find("had ended before"), std::string::npos) << down.output;
  EXPECT_EQ(meshloom({"status", "--state-dir", other_.string()}).exit_code, 0);
  EXPECT_NE(meshloom({"down", "--state-dir", state_.string()}).exit_code, 0) << "there is none";

  up(1, state_);
  const auto which = meshloom({"down"});
  EXPECT_EQ(which.exit_code, 1) << "of two it ends neither";
  for (const fs::path& state : {state_, other_})
    EXPECT_NE(which.errors.find("meshloom down --state-dir " + state.string()), std::string::npos)
        << which.errors;
  EXPECT_EQ(meshloom({"down", "--state-dir", other_.string()}).exit_code, 0);
  EXPECT_EQ(meshloom({"down"}).exit_code, 0);
  expect_none_left();
}

TEST_F(UpE2e, DownOfAFolderEndsNoDaemonOfAnotherOne) {
  up(1, other_);
  const auto other_serves = [&] {
    return meshloom({"status", "--state-dir", other_.string()}).exit_code == 0;
  };
  const Arguments by_variable{"env", "-C", "/", "MESHLOOM_STATE_DIR=" + state_.string()};
  const auto nothing = meshloom({"down"}, by_variable);
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_NE(nothing.errors.find("runs on state dir " + state_.string()), std::string::npos)
      << nothing.errors;
  EXPECT_NE(nothing.errors.find("meshloom down --state-dir " + other_.string()), std::string::npos)
      << nothing.errors;
  EXPECT_TRUE(other_serves());

  const fs::path beside = folder_ / "meshloom-state";
  for (const Arguments& before : {by_variable, Arguments{"env", "-C", folder_.string()}}) {
    const fs::path state = before == by_variable ? state_ : beside;
    const Json told = up(1, state);
    kill_daemon(state, told["pid"]);
    EXPECT_EQ(meshloom({"status"}, by_variable).exit_code, 3)
        << "another one does not stand for it";
    const auto ended = meshloom({"down"}, before);
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    EXPECT_NE(ended.output.find(state.string() + " had ended before"), std::string::npos)
        << ended.output;
    EXPECT_TRUE(other_serves()) << state;
  }
  EXPECT_EQ(meshloom({"down"}, by_variable).exit_code, 1);
  EXPECT_TRUE(other_serves());
  EXPECT_EQ(meshloom({"down"}, {"env", "-C", folder_.string()}).exit_code, 0)
      << "it is the only one, where none is named";
  EXPECT_FALSE(other_serves());
}

// A pipe of the client must not become a standard stream that it prints to.
TEST_F(UpE2e, ItStartsWithItsStandardStreamsClosed) {
  const auto started =
      run_command({"bash", "-c",
                   fmt::format("cd / && exec '{}' up --listen 127.0.0.1:0 --state-dir '{}' "
                               "--data-dir '{}' <&- >&- 2>&-",
                               test::program("meshloom"), state_.string(), data_.string())},
                  60s);
  EXPECT_EQ(started.exit_code, 0);
  EXPECT_EQ(meshloom({"status", "--state-dir", state_.string()}).exit_code, 0);
  EXPECT_EQ(meshloom({"down"}).exit_code, 0);
}

TEST_F(UpE2e, OneThatWasStartedByHandIsNotDownsToEnd) {
  start(1);
  const auto status = meshloom({"status", "--state-dir", state_.string()});
  EXPECT_EQ(status.exit_code, 0) << status.errors;
  EXPECT_EQ(status.output.find("meshloom up"), std::string::npos);
  const auto down = meshloom({"down", "--state-dir", state_.string()});
  EXPECT_EQ(down.exit_code, 1);
  EXPECT_NE(down.errors.find("meshloom shutdown ends it"), std::string::npos) << down.errors;
  const auto up = meshloom(up_arguments(1, state_, {"--listen", "127.0.0.1:0"}));
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_NE(up.errors.find("was started by hand"), std::string::npos) << up.errors;
  shut_down();
}

// A rank that is stopped keeps the daemon from ending.
TEST_F(UpE2e, DownSaysWhatItWaitsForAndCtrlCLeavesItToEnd) {
  up(2, state_);
  const std::vector<pid_t> ranks = ranks_of(state_);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  {
    Process down({test::program("meshloom"), "down", "--state-dir", state_.string()},
                 folder_ / "down.log");
    EXPECT_TRUE(eventually(10s, [&] {
      return read_file(folder_ / "down.log").find("waiting for") != std::string::npos;
    })) << read_file(folder_ / "down.log");
    down.signal(SIGINT);
    EXPECT_EQ(down.wait(5s), 130);
  }
  ::kill(ranks[1], SIGCONT);
  const auto again = meshloom({"down", "--state-dir", state_.string()});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  expect_none_left();
}

std::string environment_of(pid_t pid) {
  std::string text = read_file(fmt::format("/proc/{}/environ", pid));
  std::replace(text.begin(), text.end(), '\0', '\n');
  return "\n" + text;
}

TEST_F(UpE2e, RanksThatWaitSleepUnlessTheUserSaysOtherwise) {
  up(2, state_);
  for (const pid_t pid : ranks_of(state_)) {
    EXPECT_NE(environment_of(pid).find("\nGOMP_SPINCOUNT="), std::string::npos);
    EXPECT_EQ(read_file(fmt::format("/proc/{}/comm", pid)), "meshloomd\n");
    EXPECT_EQ(read_file(fmt::format("/proc/{}/cmdline", pid)).c_str(), test::program("meshloomd"));
  }
  EXPECT_EQ(meshloom({"down"}).exit_code, 0);
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  up(1, state_);
  ::unsetenv("OMP_WAIT_POLICY");
  for (const pid_t pid : ranks_of(state_))
    EXPECT_EQ(environment_of(pid).find("\nGOMP_SPINCOUNT="), std::string::npos);
}

}  // namespace
}  // namespace meshloom::e2e
