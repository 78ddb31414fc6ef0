// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/peer_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace meshloom::comm {
namespace {

/// A child that has told its start time and waits.
class Child {
 public:
  Child() {
    int told[2], held[2];
    EXPECT_EQ(pipe(told), 0);
    EXPECT_EQ(pipe(held), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(held[1]);
      const std::uint64_t mine = own_start_time();
      bool done = write(told[1], &mine, sizeof mine) == sizeof mine;
      char none = 0;
      done = read(held[0], &none, 1) == 0 && done;
      _exit(done ? 0 : 1);
    }
    EXPECT_EQ(read(told[0], &start_time_, sizeof start_time_),
              static_cast<ssize_t>(sizeof start_time_));
    for (const int end : {told[0], told[1], held[0]}) close(end);
    held_ = held[1];
  }
  /// It has ended, and its number is free again, when this returns.
  void end() const {
    close(held_);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  }

  pid_t pid() const { return pid_; }
  std::uint64_t start_time() const { return start_time_; }

 private:
  pid_t pid_ = -1;
  int held_ = -1;
  std::uint64_t start_time_ = 0;
};

Child ended_child() {
  const Child child;
  child.end();
  return child;
}

TEST(PeerProcess, OneThatEndedBeforeItWasWatchedIsGone) {
  const Child child = ended_child();
  const PeerProcess peer(child.pid(), child.start_time(), own_pid_namespace());
  EXPECT_TRUE(peer.gone());
  EXPECT_EQ(peer.state(), PeerProcess::State::kGone);
}

TEST(PeerProcess, OneOfAnotherNamespaceIsNotKnown) {
  const Child child = ended_child();
  const PeerProcess peer(child.pid(), child.start_time(), own_pid_namespace() + 1);
  EXPECT_FALSE(peer.gone());
  EXPECT_EQ(peer.state(), PeerProcess::State::kUnknown);
}

TEST(PeerProcess, OneThatGoesWhileItIsLookedAtIsGone) {
  for (int i = 0; i < 300; ++i) {
    const Child child;
    const PeerProcess peer(child.pid(), child.start_time(), own_pid_namespace(),
                           PeerProcess::Watch::kStartTime);
    std::thread end([&] { child.end(); });
    EXPECT_NO_THROW({
      while (peer.state() != PeerProcess::State::kGone) continue;
    }) << i;
    end.join();
  }
}

TEST(PeerProcess, ThisProcessRuns) {
  const PeerProcess peer(getpid(), own_start_time(), own_pid_namespace());
  EXPECT_FALSE(peer.gone());
  EXPECT_EQ(peer.state(), PeerProcess::State::kRunning);
}

}  // namespace
}  // namespace meshloom::comm
