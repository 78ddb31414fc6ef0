// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/peer_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace meshloom::comm {
namespace {

/// A child that has told its start time and ended.
struct Ended {
  pid_t pid = -1;
  std::uint64_t start_time = 0;
};

Ended ended_child() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  Ended child{fork(), 0};
  if (child.pid == 0) {
    const std::uint64_t mine = own_start_time();
    _exit(write(ends[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
  }
  EXPECT_EQ(read(ends[0], &child.start_time, sizeof child.start_time),
            static_cast<ssize_t>(sizeof child.start_time));
  EXPECT_EQ(waitpid(child.pid, nullptr, 0), child.pid);
  close(ends[0]);
  close(ends[1]);
  return child;
}

TEST(PeerProcess, OneThatEndedBeforeItWasWatchedIsGone) {
  const Ended child = ended_child();
  const PeerProcess peer(child.pid, child.start_time, own_pid_namespace());
  EXPECT_TRUE(peer.gone());
  EXPECT_EQ(peer.state(), PeerProcess::State::kGone);
}

TEST(PeerProcess, OneOfAnotherNamespaceIsNotKnown) {
  const Ended child = ended_child();
  const PeerProcess peer(child.pid, child.start_time, own_pid_namespace() + 1);
  EXPECT_FALSE(peer.gone());
  EXPECT_EQ(peer.state(), PeerProcess::State::kUnknown);
}

TEST(PeerProcess, ThisProcessRuns) {
  const PeerProcess peer(getpid(), own_start_time(), own_pid_namespace());
  EXPECT_FALSE(peer.gone());
  EXPECT_EQ(peer.state(), PeerProcess::State::kRunning);
}

}  // namespace
}  // namespace meshloom::comm
