// SPDX-License-Identifier: Apache-2.0
// Starting, idling, and what must not start.
#include <fmt/format.h>
#include <unistd.h>

#include "daemon/base/process_stat.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"
#include "tests/unit/control/stores/journal_writer.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using StartE2e = DaemonTest;

double cpu_seconds(pid_t pid) {
  const auto stat = base::read_process_stat(pid).value();
  return static_cast<double>(stat.user_ticks + stat.system_ticks) /
         static_cast<double>(::sysconf(_SC_CLK_TCK));
}

TEST_F(StartE2e, AnIdleDaemonIsSmallAndQuiet) {
  start();
  const Json status = client_json({"status"});
  for (const auto& worker : status["workers"])
    EXPECT_LE(worker["memory_bytes"].get<std::int64_t>(), 60 << 20);
  double before = 0, after = 0;
  for (const pid_t pid : pids_) before += cpu_seconds(pid);
  sleep_ms(4000);
  for (const pid_t pid : pids_) after += cpu_seconds(pid);
  EXPECT_LE(after - before, 0.04 + 1e-9) << "more than 1 % of a core";
}

TEST_F(StartE2e, ASecondDaemonOnTheStateDirOrPortIsRefused) {
  start();
  const auto same_state = launch(2, {"--listen", "127.0.0.1:0"}, "second.log");
  EXPECT_EQ(same_state->wait(20s), 1);
  EXPECT_NE(read_file(folder_ / "second.log").find("is in use by another meshloomd"),
            std::string::npos);
  const auto same_port =
      launch(2, {"--listen", address_, "--state-dir", (folder_ / "other").string()}, "third.log");
  EXPECT_EQ(same_port->wait(20s), 1);
  EXPECT_NE(read_file(folder_ / "third.log").find("cannot listen on " + address_),
            std::string::npos);
  EXPECT_EQ(client({"status"}).exit_code, 0);
  submit({}, "after");
  EXPECT_TRUE(reaches("after", "succeeded"));
}

TEST_F(StartE2e, WithTooLittleAddressSpaceItEndsAndSaysWhy) {
  for (const int ranks : {1, 2}) {
    launcher_ = {"prlimit", "--as=500000000"};
    const std::string log = fmt::format("limited-{}.log", ranks);
    EXPECT_EQ(launch(ranks, {}, log)->wait(20s), 1) << ranks;
    const std::string text = read_file(folder_ / log);
    EXPECT_NE(text.find("the limit on address space (ulimit -v, prlimit --as) is 476 MiB"),
              std::string::npos)
        << text;
  }
}

// Each "host" has a mount namespace of its own. Rank 1's state folder is an empty one, and so is
// the folder of the config file.
TEST_F(StartE2e, ARankThatDoesNotShareTheStateFolderIsNamedAndServed) {
  fs::create_directories(folder_ / "settings");
  const auto config = write_text("settings/daemon.yaml", "threads: 3\n");
  const std::string hide = fmt::format("mount -t tmpfs none '{}' && mount -t tmpfs none '{}'",
                                       state_.string(), (folder_ / "settings").string());
  fs::create_directories(state_);
  if (run_command({"unshare", "-m", "sh", "-c", hide}, 10s).exit_code != 0)
    GTEST_SKIP() << "mount namespaces are not allowed here";
  const std::string daemon =
      fmt::format("exec '{}' --listen 127.0.0.1:0 --state-dir '{}' --data-dir '{}' --config '{}'",
                  test::program("meshloomd"), state_.string(), data_.string(), config);
  daemon_ = std::make_unique<Process>(
      Arguments{"mpirun", "--bind-to", "none", "--oversubscribe", "-n", "1", "sh", "-c", daemon,
                ":", "-n", "1", "unshare", "-m", "sh", "-c", hide + " && " + daemon},
      folder_ / "daemon.log");
  ASSERT_NO_FATAL_FAILURE(wait_until_serving(2));
  const auto says = [&](const char* text) { return daemon_log().find(text) != std::string::npos; };
  EXPECT_TRUE(says("all ranks have joined")) << daemon_log();
  EXPECT_TRUE(says("rank 1 (pid")) << daemon_log();
  EXPECT_TRUE(says("does not see the state folder")) << daemon_log();
  EXPECT_TRUE(says("writes its log on its own disk")) << daemon_log();
  EXPECT_EQ(client_json({"status"})["workers"][1]["threads"], 3) << "as rank 0's file says";
  submit({.checkpoint_interval = 10}, "served");
  EXPECT_TRUE(reaches("served", "succeeded")) << job("served").dump(2);
  shut_down();
}

// Open MPI gives each rank a segment of 4 MiB or more there, and ends without a word if it has no
// room for one.
TEST_F(StartE2e, ASmallDevShmIsGoneAroundAndWhereNothingElseHasRoomTheCauseIsTold) {
  fs::create_directories(folder_ / "tmp");
  const auto with_room = [&](const char* memory, const char* temporary) {
    return fmt::format(
        "mount -t tmpfs -o size={} none /dev/shm && mount -t tmpfs -o size={} none '{}'", memory,
        temporary, (folder_ / "tmp").string());
  };
  if (run_command({"unshare", "-m", "sh", "-c", with_room("1m", "1m")}, 10s).exit_code != 0)
    GTEST_SKIP() << "mount namespaces are not allowed here";
  const auto launched_in = [&](const std::string& mounts) {
    return Arguments{
        "unshare",
        "-m",
        "sh",
        "-c",
        fmt::format("{} && TMPDIR='{}' exec \"$@\"", mounts, (folder_ / "tmp").string()),
        "sh"};
  };
  for (const char* memory : {"64k", "4m"}) {
    launcher_ = launched_in(with_room(memory, "200m"));
    fs::remove_all(state_);
    ASSERT_NO_FATAL_FAILURE(start(2)) << memory;
    EXPECT_NE(daemon_log().find("/dev/shm has room for"), std::string::npos) << daemon_log();
    submit({}, "in-small-memory");
    EXPECT_TRUE(reaches("in-small-memory", "succeeded")) << memory;
    shut_down();
  }
  launcher_ = launched_in(with_room("4m", "3m"));
  launcher_.insert(launcher_.begin(), {"env", "OMPI_MCA_orte_execute_quiet=1"});
  const auto refused = launch(2, {"--listen", "127.0.0.1:0"}, "refused.log");
  EXPECT_EQ(refused->wait(20s), 1);
  const std::string log = read_file(folder_ / "refused.log");
  EXPECT_NE(log.find("MPI's shared-memory files of 2 ranks take"), std::string::npos) << log;
  EXPECT_NE(log.find("OMPI_MCA_orte_execute_quiet is set"), std::string::npos) << log;
}

TEST_F(StartE2e, WrongStartsExitWithTheirCode) {
  struct Case {
    Arguments flags;
    int exit_code;
    const char* text;
  };
  const auto config = write_text("daemon.yaml", "listen: 127.0.0.1:0\nlog_lvel: info\n");
  const Case cases[] = {
      {{"--world-size", "3", "--listen", "127.0.0.1:0"},
       2,
       "--world-size is 3, but 2 ranks were started"},
      {{"--listen", "0.0.0.0:0"}, 1, "neither encrypted nor authenticated"},
      {{"--listen", "nonsense"}, 2, "expected host:port"},
      {{"--data-dir", "/does/not/exist"}, 2, "no such folder"},
      {{"--threads", "0"}, 2, "--threads is 0"},
      {{"--log-level", "loud"}, 2, "--log-level is \"loud\""},
      {{"--config", config}, 2, "did you mean \"log_level\"?"},
      {{"--config", "/does/not/exist.yaml"}, 2, "cannot open /does/not/exist.yaml"},
      {{"--config", "/dev/null"}, 2, "is a device, expected a regular file"},
      {{"--state-dr", "x"}, 2, "unknown option --state-dr; did you mean --state-dir?"},
      {{"--threads", "abc"}, 2, "--threads: is abc, expected a whole number"},
  };
  for (const auto& item : cases) {
    const auto process = launch(2, item.flags, "wrong.log");
    EXPECT_EQ(process->wait(20s), item.exit_code) << item.text;
    EXPECT_NE(read_file(folder_ / "wrong.log").find(item.text), std::string::npos)
        << item.text << "\n"
        << read_file(folder_ / "wrong.log");
    // Config files may differ from host to host; the command line is one.
    if (item.flags[0] == "--config") continue;
    const std::string log = read_file(folder_ / "wrong.log");
    EXPECT_EQ(log.find(item.text), log.rfind(item.text)) << "of one rank alone:\n" << log;
  }
}

TEST_F(StartE2e, AConfigFileGivesSettingsAndFlagsWin) {
  const auto config =
      write_text("daemon.yaml", "listen: 127.0.0.1:1\nthreads: 3\nlog_level: warning\n");
  start(1, {"--config", config});
  EXPECT_EQ(client_json({"status"})["workers"][0]["threads"], 3);
  EXPECT_EQ(daemon_log().find("serves on"), std::string::npos) << "which is said at level info";
}

TEST_F(StartE2e, WithoutMpirunThereIsOneRankAndAWarning) {
  const Process alone({test::program("meshloomd"), "--listen", "127.0.0.1:0", "--state-dir",
                       state_.string(), "--data-dir", data_.string()},
                      folder_ / "alone.log");
  ASSERT_TRUE(eventually(20s, [&] { return std::filesystem::exists(state_ / "address"); }));
  address_ = read_file(state_ / "address");
  address_.pop_back();
  EXPECT_EQ(client_json({"status", "--wait", "10"})["workers"].size(), 1u);
  EXPECT_NE(read_file(folder_ / "alone.log").find("not started by mpirun"), std::string::npos);
}

TEST_F(StartE2e, ALogThatNobodyReadsAndClosedStreamsEndNothing) {
  // The reader leaves after the first line; a closed descriptor must not become a socket.
  for (const std::string streams : {"2>&1 | head -n 1", "<&- >&- 2>&-"}) {
    fs::remove_all(state_);
    const Process shell(
        {"bash", "-c",
         fmt::format("'{}/meshloomd' --listen 127.0.0.1:0 --log-level trace --state-dir '{}' "
                     "--data-dir '{}' {}",
                     test::program_folder(), state_.string(), data_.string(), streams)},
        folder_ / "shell.log");
    ASSERT_TRUE(eventually(20s, [&] { return fs::exists(state_ / "address"); })) << streams;
    address_ = read_file(state_ / "address");
    address_.pop_back();
    const Json status = client_json({"status", "--wait", "10"});
    ASSERT_EQ(status["workers"].size(), 1u) << streams;
    const std::string descriptors =
        fmt::format("/proc/{}/fd/", status["workers"][0]["pid"].get<int>());
    for (const char* fd : {"0", "1", "2"})
      EXPECT_NE(fs::read_symlink(descriptors + fd).string().rfind("socket:", 0), 0u) << fd;
    submit({}, "unread");
    EXPECT_TRUE(reaches("unread", "succeeded")) << streams;
    EXPECT_EQ(client({"shutdown", "--wait", "20"}).exit_code, 0) << streams;
  }
}

TEST_F(StartE2e, AShutdownThatWaitsReturnsAfterMpirun) {
  start();
  submit_endless("dp2", "running", 1);
  const auto stopped = client({"shutdown", "--wait", "30"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.errors;
  EXPECT_EQ(wait_for_end(0ms), 0) << "mpirun has not ended";
  const std::string log = daemon_log();
  EXPECT_NE(log.find("job running: stopped at step "), std::string::npos) << log;
  EXPECT_EQ(log.find("job running: recovering"), std::string::npos)
      << "it was saved, there is nothing to recover";
}

/// The journal as one of version 3 whose run has 20 bytes left in its record: with its end time it
/// is longer than a journal takes.
void fill_run_record(const fs::path& journal) {
  v1::JournalRecord whole;
  const auto read = [&](const v1::JournalRecord& record) {
    if (record.has_run()) whole = record;
    if (record.has_saved_state())
      *whole.mutable_run()->mutable_run()->add_saved() = record.saved_state();
  };
  for (const v1::JournalRecord& record : control::read_journal(journal)) {
    read(record);
    for (const v1::JournalRecord& item : record.group()) read(item);
  }
  whole.clear_without_parts();
  v1::Run& run = *whole.mutable_run()->mutable_run();
  const v1::SavedState newest = run.saved(run.saved_size() - 1);
  run.clear_saved();
  for (int i = 0; i < 255; ++i) {
    v1::SavedState& older = *run.add_saved();
    older.set_name(fmt::format("{}/states/older-{}", run.name(), i));
    (*older.mutable_user_metadata())["of"] = std::string(65'000, 'm');
  }
  *run.add_saved() = newest;
  std::string& last = (*run.mutable_saved(254)->mutable_user_metadata())["of"];
  const std::size_t wanted = control::Journal::kLongestRecord - 20;
  last.resize(last.size() + wanted - whole.ByteSizeLong());
  last.resize(last.size() - (whole.ByteSizeLong() - wanted));
  ASSERT_EQ(whole.ByteSizeLong(), wanted);
  fs::remove(journal);
  control::write_journal(journal, {whole}, 3);
}

TEST_F(StartE2e, AStateDirWhoseRunFillsARecordServesAndStops) {
  start(1);
  const std::string file = write_text("run.yaml", R"(config:
  model: {preset: byte_gpt_tiny}
  plan: {dtype: float32}
)");
  const std::string token = client_json({"run", "create", file, "--name", "big"})["token"];
  ASSERT_EQ(client({"run", "save-state", "big", "own", "--token", token}).exit_code, 0);
  shut_down();
  ASSERT_NO_FATAL_FAILURE(fill_run_record(state_ / "journal"));
  start(1);
  ASSERT_TRUE(eventually(20s, [&] {
    return client_json({"run", "show", "big"})["state"] == "ready";
  }));
  submit({.steps = 2}, "behind");
  const auto refused = client({"run", "save-state", "big", "one-more", "--metadata",
                               "of=" + std::string(20'000, 'm'), "--token", token});
  EXPECT_NE(refused.errors.find("16777216"), std::string::npos) << refused.errors;
  EXPECT_NE(client({"run", "list"}).output.find(" 256 "), std::string::npos);
  EXPECT_EQ(client_json({"run", "states", "big"})["states"].size(), 256u);
  EXPECT_EQ(client({"run", "close", "big", "--token", token}).exit_code, 0);
  EXPECT_TRUE(reaches("behind", "succeeded"));
  EXPECT_TRUE(client_json({"status"})["journal_trouble"].empty());
  EXPECT_EQ(client({"shutdown", "--wait", "20"}).exit_code, 0);
}

TEST_F(StartE2e, HelpAndVersionNeedNoMpi) {
  for (const auto* program : {"meshloomd", "meshloom"}) {
    const std::string path = test::program(program);
    const auto help = run_command({path, "--help"}, 10s);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.output.find("xample"), std::string::npos);
    EXPECT_EQ(run_command({path, "--version"}, 10s).exit_code, 0);
  }
}

}  // namespace
}  // namespace meshloom::e2e
