// SPDX-License-Identifier: Apache-2.0
// Every signal to rank 0, to another rank and to mpirun while a job trains: what comes of it is
// what the table of daemon/control/README.md says.
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "daemon/base/process_stat.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTargets{"rank 0", "rank 1", "mpirun"};
constexpr std::size_t kMpirun = 2;

/// "HUP" and so on; of the many real-time signals the first and the last.
std::map<std::string, int> all_signals() {
  std::map<std::string, int> signals{{"RTMIN", SIGRTMIN}, {"RTMAX", SIGRTMAX}, {"IO", SIGIO}};
  for (int number = 1; number < 32; ++number)
    if (number != SIGIO) signals[::sigabbrev_np(number)] = number;
  return signals;
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(trimmed(part));
  return parts;
}

using Outcomes = std::array<std::string, kTargets.size()>;

/// The rows below the heading "Signals", by signal: what it does to each target.
std::map<std::string, Outcomes> documented() {
  std::map<std::string, Outcomes> table;
  std::ifstream file(test::source_file("daemon/control/README.md"));
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) here = line == "## Signals";
    const std::vector<std::string> cells = split(line, '|');
    if (!here || cells.size() != 5 || cells[1] == "to" || cells[1].starts_with("--")) continue;
    for (const std::string& name : split(cells[1], ','))
      EXPECT_TRUE(table.try_emplace(name, Outcomes{cells[2], cells[3], cells[4]}).second) << name;
  }
  return table;
}

struct SignalCase {
  std::string name;
  int number = 0;
  std::size_t target = 0;
  std::string expected;

  std::string text() const { return fmt::format("SIG{} to {}", name, kTargets[target]); }
};

/// Those of the table that end in one of these ways.
std::vector<SignalCase> cases(const std::vector<std::string>& outcomes) {
  const std::map<std::string, int> numbers = all_signals();
  std::vector<SignalCase> found;
  for (const auto& [name, row] : documented())
    for (std::size_t target = 0; target < kTargets.size(); ++target)
      if (std::find(outcomes.begin(), outcomes.end(), row[target]) != outcomes.end())
        if (const auto number = numbers.find(name); number != numbers.end())
          found.push_back({name, number->second, target, row[target]});
  return found;
}

/// A daemon with a job that trains, and what becomes of both.
class Trial : public DaemonTest {
 public:
  Trial() {
    // A signal that would leave a core is as good without one.
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
  }
  ~Trial() override {
    if (daemon_) kill_everything();
  }
  void TestBody() override {}

  /// On the state folder of the last one, if there was one: the job goes on from its checkpoint.
  void begin(bool patient) {
    // Ranks that mpirun ends are given the time that README.md's start gives them.
    launcher_ = patient ? Arguments{"env", "OMPI_MCA_odls_base_sigkill_timeout=8"} : Arguments{};
    const int before = newest();
    log_begin_ = log_of(0).size();
    // No attempt may come further than the last one, and the job is not at fault.
    start(2, {"--max-stalled-attempts", "1000"});
    if (HasFatalFailure()) return;
    if (before == 0) {
      TinyJob endless;
      endless.steps = 100'000'000;
      endless.checkpoint_interval = 200;
      submit(endless, "running");
    } else {
      const std::string from = fmt::format("goes on from the checkpoint of step {}", before);
      EXPECT_TRUE(eventually(20s, [&] { return says(from); })) << from << "\n" << daemon_log();
    }
    EXPECT_TRUE(eventually(60s, [&] { return newest() > 0; })) << "no checkpoint";
    EXPECT_TRUE(trains()) << daemon_log();
  }
  void send(const SignalCase& of) const {
    if (of.target == kMpirun)
      daemon_->signal(of.number);
    else
      ::kill(pids_[of.target], of.number);
  }
  void go_on(const SignalCase& of) const { send({"CONT", SIGCONT, of.target, ""}); }

  bool lives() const {
    return is_alive(daemon_->pid()) && std::all_of(pids_.begin(), pids_.end(), is_alive);
  }
  bool waits() const { return std::any_of(pids_.begin(), pids_.end(), is_stopped); }
  /// Of mpirun and all ranks, as a scheduler that suspends a job of a cluster and resumes it.
  void send_to_all(int signal, bool mpirun_first) const {
    if (mpirun_first) daemon_->signal(signal);
    for (const pid_t pid : pids_) ::kill(pid, signal);
    if (!mpirun_first) daemon_->signal(signal);
  }
  std::string waits_of_mpirun() const {
    return read_file(fmt::format("/proc/{}/wchan", daemon_->pid()));
  }
  bool mpirun_is_stopped() const { return is_stopped(daemon_->pid()); }
  /// Since begin(). A launcher of Open MPI 5 that ends its ranks prints no more of what they say,
  /// but their log files have it.
  bool says(const std::string& text) const {
    return daemon_log().find(text) != std::string::npos ||
           log_of(0).find(text, log_begin_) != std::string::npos;
  }
  /// Whether steps are done. The daemon is not asked: its rank 0 may be stopped.
  bool trains() const {
    const std::size_t before = steps();
    return eventually(20s, [&] { return steps() > before + 2; });
  }
  /// What came of a signal that ends all; "goes on" where it does not.
  std::string end() {
    if (!eventually(40s, [&] { return daemon_->wait(0ms).has_value(); })) return "goes on";
    wait_for_end();
    const std::string saved = fmt::format("job running: stopped at step {}", newest());
    return says(saved) ? "saved" : "dies";
  }

 private:
  static bool is_stopped(pid_t pid) {
    const auto stat = base::read_process_stat(pid);
    return stat && stat->state == 'T';
  }
  std::size_t steps() const {
    const std::string metrics = read_file(state_ / "jobs/running/metrics.jsonl");
    return static_cast<std::size_t>(std::count(metrics.begin(), metrics.end(), '\n'));
  }
  /// Of the checkpoints that are whole: others still have another name.
  int newest() const {
    int newest = 0;
    std::error_code ignored;
    for (const auto& item : fs::directory_iterator(state_ / "jobs/running/checkpoints", ignored)) {
      int step = 0;
      char more = 0;
      if (std::sscanf(item.path().filename().c_str(), "step-%d%c", &step, &more) == 1)
        newest = std::max(newest, step);
    }
    return newest;
  }

  std::size_t log_begin_ = 0;  ///< in the log file of rank 0
};

/// What came of a signal that leaves the daemon as it was.
std::string survived(const Trial& trial, const SignalCase& of) {
  trial.send(of);
  sleep_ms(400);  // for mpirun to pass it on
  if (!trial.lives()) return "dies";
  const bool waits = trial.waits();
  // A mpirun that is stopped would pass no other signal on.
  if (waits || trial.mpirun_is_stopped()) trial.go_on(of);
  if (!trial.trains() || !trial.lives()) return "hangs";
  if (waits) return "waits";
  return trial.says("SIG" + of.name + " from pid") ? "logged" : "ignored";
}

TEST(SignalsE2e, TheTableHasAllSignals) {
  const auto table = documented();
  for (const auto& [name, number] : all_signals()) EXPECT_TRUE(table.contains(name)) << name;
  for (const auto& [name, row] : table) {
    EXPECT_TRUE(all_signals().contains(name)) << name << " is no signal";
    for (const std::string& outcome : row)
      EXPECT_TRUE(outcome == "saved" || outcome == "logged" || outcome == "ignored" ||
                  outcome == "waits" || outcome == "dies")
          << name << ": " << outcome;
  }
}

TEST(SignalsE2e, WhatIsIgnoredLoggedOrWaitedForLeavesAllAsItWas) {
  const std::vector<SignalCase> all = cases({"logged", "ignored", "waits"});
  EXPECT_GE(all.size(), 20u);
  Trial trial;
  trial.begin(true);
  for (const SignalCase& of : all) ASSERT_EQ(survived(trial, of), of.expected) << of.text();
}

TEST(SignalsE2e, ASchedulerThatSuspendsAndResumesTheWholeTreeChangesNothing) {
  Trial trial;
  trial.begin(false);
  for (const int stop : {SIGSTOP, SIGTSTP}) {
    for (const bool mpirun_first : {true, false}) {
      trial.send_to_all(stop, mpirun_first);
      sleep_ms(1000);
      EXPECT_TRUE(trial.waits());
      // srun and the daemon of its step may both wake a process.
      for (int i = 0; i < 2; ++i) trial.send_to_all(SIGCONT, mpirun_first);
      ASSERT_TRUE(trial.trains()) << stop;
      sleep_ms(1500);  // so long a sign of an end is looked for
      ASSERT_TRUE(trial.trains() && trial.lives()) << stop;
      EXPECT_FALSE(trial.says("ends its ranks")) << stop;
    }
  }
}

TEST(SignalsE2e, AMpirunThatIsToldToStopIsHeardBeforeItsSigterm) {
  Trial trial;
  trial.begin(true);
  if (trial.waits_of_mpirun() == "0") GTEST_SKIP() << "the kernel does not tell what it waits for";
  trial.send({"TERM", SIGTERM, kMpirun, ""});
  EXPECT_EQ(trial.end(), "saved");
  EXPECT_TRUE(trial.says("ends its ranks")) << "its sleep before SIGTERM was not used";
}

/// Several daemons at once, since each start and end is mostly a wait.
TEST(SignalsE2e, WhatEndsTheDaemonSavesOrLeavesTheLastCheckpoint) {
  const std::vector<SignalCase> all = cases({"saved", "dies"});
  EXPECT_GE(all.size(), 40u);
  constexpr std::size_t kLanes = 4;
  std::vector<std::thread> lanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    lanes.emplace_back([&, lane] {
      Trial trial;
      for (std::size_t i = lane; i < all.size(); i += kLanes) {
        trial.begin(all[i].target == kMpirun && all[i].expected == "saved");
        trial.send(all[i]);
        const std::string outcome = trial.end();
        EXPECT_EQ(outcome, all[i].expected) << all[i].text();
        if (outcome == "goes on") break;
      }
    });
  for (std::thread& lane : lanes) lane.join();
}

}  // namespace
}  // namespace meshloom::e2e
