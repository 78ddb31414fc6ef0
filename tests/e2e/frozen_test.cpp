// SPDX-License-Identifier: Apache-2.0
// Ranks that are frozen, stuck or never come: named at once, given up in time, and as before where
// they wake.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/loopback.h"

namespace meshloom::e2e {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class FrozenE2e : public DaemonTest {
 protected:
  static TinyJob endless() {
    TinyJob job;
    job.steps = 10'000'000;
    job.checkpoint_interval = 100;
    return job;
  }
  /// As ListWorkers tells, which must answer at once.
  std::string worker_state(int rank) const {
    const auto begin = Clock::now();
    const Json status = call_workers();
    EXPECT_LT(Clock::now() - begin, 5s) << "ListWorkers hangs";
    return status["workers"][static_cast<std::size_t>(rank)]["state"];
  }
  Json call_workers() const {
    const CommandResult result = client({"--json", "status"});
    return Json::parse(result.output, nullptr, false);
  }
  bool becomes(int rank, const std::string& state, std::chrono::milliseconds timeout) const {
    return eventually(timeout, [&] { return worker_state(rank) == state; });
  }
  std::string notes_of(const std::string& name) const {
    const Json shown = job(name);
    return shown.contains("notes") ? shown["notes"].dump() : "";
  }
};

TEST_F(FrozenE2e, ARankThatIsStoppedFor8SecondsIsNamedAndGoesOnWithEqualBits) {
  start();
  // Long enough to be running still when the rank stops, also on a fast machine.
  TinyJob short_job;
  short_job.steps = 4000;
  submit(short_job, "whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 120s));
  submit(short_job, "frozen");
  ASSERT_TRUE(reaches_step("frozen", 20));
  const auto stopped = Clock::now();
  ::kill(pids_[1], SIGSTOP);
  EXPECT_TRUE(becomes(1, "silent", 5s));
  EXPECT_LT(Clock::now() - stopped, 4s);
  EXPECT_EQ(worker_state(0), "ready");
  const CommandResult status = client({"status"});
  EXPECT_NE(status.exit_code, 0) << "the health is that of all ranks";
  EXPECT_THAT(status.output, HasSubstr("rank 1 is silent"));
  EXPECT_THAT(status.output, HasSubstr("frozen or cut off"));
  EXPECT_THAT(status.output, HasSubstr("running: frozen"));
  EXPECT_THAT(log_of(0), HasSubstr("frozen or cut off"));
  EXPECT_TRUE(eventually(2s, [&] { return !notes_of("frozen").empty(); }));
  EXPECT_THAT(notes_of("frozen"), HasSubstr("frozen or cut off"));
  std::this_thread::sleep_until(stopped + 8s);
  ::kill(pids_[1], SIGCONT);
  EXPECT_TRUE(becomes(1, "ready", 5s));
  EXPECT_EQ(client({"status"}).exit_code, 0);
  ASSERT_TRUE(reaches("frozen", "succeeded", 120s)) << job("frozen").dump(2) << daemon_log();
  EXPECT_EQ(step_losses("whole").size(), 4000u);
  EXPECT_EQ(step_losses("whole"), step_losses("frozen"));
  EXPECT_THAT(log_of(0), HasSubstr("is back"));
  shut_down();
}

TEST_F(FrozenE2e, ARankThatStaysFrozenIsGivenUpAndTheJobGoesOnLater) {
  start_with("rank_timeout_ms: 1500\n");
  submit(endless(), "job");
  ASSERT_TRUE(reaches_step("job", 110));
  ::kill(pids_[1], SIGSTOP);
  EXPECT_NE(wait_for_end(40s), 0);
  EXPECT_THAT(read_file(folder_ / "daemon.log"), HasSubstr("is given up: nothing was heard of it"));
  start();
  ASSERT_TRUE(reaches_step("job", 120));
  EXPECT_EQ(job("job")["attempt"], 2);
  EXPECT_THAT(notes_of("job"), HasSubstr("attempt 1 ended: rank 1"));
}

TEST_F(FrozenE2e, AFrozenRank0IsToldByTheOthers) {
  start();
  submit(endless(), "job");
  ASSERT_TRUE(reaches_step("job", 5));
  ::kill(pids_[0], SIGSTOP);
  EXPECT_TRUE(eventually(5s, [&] {
    return log_of(1).find("rank 0: nothing was heard of it") != std::string::npos;
  })) << log_of(1);
  ::kill(pids_[0], SIGCONT);
  const int step = job("job")["step"];
  EXPECT_TRUE(reaches_step("job", step + 20)) << daemon_log();
  EXPECT_EQ(worker_state(1), "ready");
}

TEST_F(FrozenE2e, AStrangersByteInMpiIsNoticedByTheWatch) {
  // The transport that listens, as a user may choose it.
  ::setenv("OMPI_MCA_btl", "self,tcp", 1);
  ::setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
  start_with("rank_timeout_ms: 3000\n");
  ::unsetenv("OMPI_MCA_btl");
  ::unsetenv("OMPI_MCA_btl_tcp_if_include");
  ASSERT_EQ(pids_.size(), 2u);
  submit(endless(), "job");
  ASSERT_TRUE(reaches_step("job", 5));
  const auto listeners = tcp_listeners(pids_[1]);
  ASSERT_FALSE(listeners.empty());
  const base::UniqueFd socket = test::connect_to_loopback(port_of(listeners[0]));
  ASSERT_TRUE(socket);
  ASSERT_EQ(::send(socket.get(), "x", 1, 0), 1);
  EXPECT_TRUE(becomes(1, "stuck", 10s)) << daemon_log();
  EXPECT_NE(wait_for_end(40s), 0);
  EXPECT_THAT(daemon_log(), HasSubstr("inside one call of the transport"));
}

TEST_F(FrozenE2e, ARankThatNeverJoinsEndsTheStart) {
  // Rank 1 waits for ever for a reader of its log.
  std::filesystem::create_directories(state_ / "logs");
  ASSERT_EQ(::mkfifo((state_ / "logs/rank-1.log").c_str(), 0600), 0);
  const std::string config = write_text("daemon.yaml", "join_timeout_ms: 500\n");
  const auto process = launch(3, {"--listen", "127.0.0.1:0", "--config", config}, "join.log");
  EXPECT_EQ(process->wait(40s), 1);
  EXPECT_THAT(read_file(folder_ / "join.log"), HasSubstr("rank 1 of 3 did not join within 0.5 s"));
}

}  // namespace
}  // namespace meshloom::e2e
