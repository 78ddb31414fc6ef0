// SPDX-License-Identifier: Apache-2.0
// Each listener is in a process of its own, since signals are blocked for all threads of one.
#include "daemon/control/host/stop_signal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

namespace meshloom::control {
namespace {

/// A child that listens. It writes a byte when it has begun and
/// one for each cause of a stop, and ends with code 0 after `last` of them.
class ListeningChild {
 public:
  explicit ListeningChild(int last, const std::function<void()>& before = {}) {
    if (::pipe(pipe_) != 0) std::perror("pipe");
    child_ = ::fork();
    if (child_ != 0) {
      ::close(pipe_[1]);
      EXPECT_TRUE(tells('b'));
      return;
    }
    ::alarm(20);
    if (before) before();
    prepare_signals();
    std::atomic<int> heard{0};
    {
      struct Hears final : StopRequests {
        Hears(const ListeningChild& child, std::atomic<int>& count)
            : told(child), heard_stops(count) {}
        void request_stop(const std::string& cause) override {
          told.tell(cause[0]);
          ++heard_stops;
        }
        const ListeningChild& told;
        std::atomic<int>& heard_stops;
      } hears(*this, heard);
      const StopSignalListener listener(hears);
      tell('b');
      while (heard < last) ::usleep(1000);
    }
    ::_exit(0);
  }
  ~ListeningChild() {
    ::kill(child_, SIGKILL);
    ::close(pipe_[0]);
  }
  void send(int signal) const { ::kill(child_, signal); }
  /// Whether the next byte is this.
  bool tells(char expected) const {
    char byte = 0;
    return ::read(pipe_[0], &byte, 1) == 1 && byte == expected;
  }
  /// While its listener waits.
  void stop() const {
    while (!listener_waits()) ::usleep(1000);
    send(SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, WUNTRACED), child_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  int exit_status() const {
    int status = -1;
    ::waitpid(child_, &status, 0);
    return status;
  }

 private:
  bool listener_waits() const {
    const std::filesystem::path tasks = "/proc/" + std::to_string(child_) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      if (task.path().filename() == std::to_string(child_)) continue;
      std::ifstream file(task.path() / "stat");
      std::string stat;
      std::getline(file, stat);
      return stat.find(") S ") != std::string::npos;
    }
    return false;
  }
  void tell(char byte) const { (void)!::write(pipe_[1], &byte, 1); }

  int pipe_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST(StopSignal, WhatAsksForAStopIsHeardAndAStrayOneChangesNothing) {
  const int stops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGXCPU, SIGPWR};
  const ListeningChild child(std::size(stops));
  for (const int signal : stops) {
    child.send(SIGUSR2);
    child.send(signal);
    EXPECT_TRUE(child.tells('S')) << signal;
  }
  EXPECT_EQ(child.exit_status(), 0);
}

TEST(StopSignal, NohupKeepsSighupAway) {
  const ListeningChild child(1, [] { ::signal(SIGHUP, SIG_IGN); });
  child.send(SIGHUP);
  child.send(SIGTERM);
  EXPECT_TRUE(child.tells('S'));
  EXPECT_FALSE(child.tells('S')) << "SIGHUP was heard, too";
  EXPECT_EQ(child.exit_status(), 0);
}

/// Gives this process the name of a launcher, for its children to see.
class NamedAs {
 public:
  explicit NamedAs(const char* name) {
    ::prctl(PR_GET_NAME, before_);
    ::prctl(PR_SET_NAME, name);
  }
  ~NamedAs() { ::prctl(PR_SET_NAME, before_); }
  NamedAs(const NamedAs&) = delete;
  NamedAs& operator=(const NamedAs&) = delete;

 private:
  char before_[16] = {};
};

/// As a launcher does that has nothing to do.
void wait_for_events(int milliseconds) { ::poll(nullptr, 0, milliseconds); }

bool kernel_tells_what_is_waited_for() {
  std::thread sleeper([] { ::usleep(200'000); });
  wait_for_events(50);
  bool tells = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "wchan");
    std::string name;
    file >> name;
    tells = tells || name.find("nanosleep") != std::string::npos;
  }
  sleeper.join();
  return tells;
}

TEST(StopSignal, SigcontOfALauncherThatEndsItsRanksAsksForAStop) {
  if (!kernel_tells_what_is_waited_for()) GTEST_SKIP() << "/proc/PID/wchan is 0 here";
  // Open MPI 4 sleeps for a second or longer before SIGTERM, Open MPI 5 for a quarter of one.
  for (const auto& [name, sleep_us] : {std::pair("mpirun", 800'000), {"prted", 250'000}}) {
    const NamedAs launcher(name);
    const ListeningChild child(2);
    child.send(SIGCONT);
    ::usleep(sleep_us);
    child.send(SIGTERM);
    EXPECT_TRUE(child.tells('m')) << name;
    EXPECT_TRUE(child.tells('S')) << name << " asked twice by SIGCONT";
    EXPECT_EQ(child.exit_status(), 0);
  }
}

TEST(StopSignal, SigcontThatALauncherPassesOnChangesNothing) {
  const NamedAs launcher("mpirun");
  const ListeningChild child(1);
  for (int i = 0; i < 2; ++i) {
    child.stop();
    child.send(SIGCONT);
  }
  child.send(SIGCONT);
  ::usleep(30'000);  // no sleep before an end is so short
  wait_for_events(1500);
  child.send(SIGUSR1);
  EXPECT_TRUE(child.tells('S')) << "and not by SIGCONT before it";
  EXPECT_EQ(child.exit_status(), 0);
}

TEST(StopSignal, SigcontOfAParentThatIsNoLauncherChangesNothing) {
  const NamedAs other("slurmstepd");
  const ListeningChild child(1);
  child.send(SIGCONT);
  ::usleep(1'500'000);
  child.send(SIGUSR1);
  EXPECT_TRUE(child.tells('S')) << "and not by SIGCONT before it";
  EXPECT_EQ(child.exit_status(), 0);
}

TEST(StopSignal, AWriteBeyondTheLimitOfFileSizesFailsAndEndsNothing) {
  const ListeningChild child(1, [] {
    prepare_signals();
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    std::FILE* file = std::tmpfile();
    if (file == nullptr || ::write(::fileno(file), "x", 1) != -1 || errno != EFBIG) ::_exit(1);
  });
  child.send(SIGTERM);
  EXPECT_TRUE(child.tells('S'));
  EXPECT_EQ(child.exit_status(), 0);
}

}  // namespace
}  // namespace meshloom::control
