// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/state_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace meshloom::launch {
namespace {

using namespace std::chrono_literals;

base::UniqueFd locked(const std::filesystem::path& path, int flags) {
  base::UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC));
  EXPECT_EQ(::flock(fd.get(), LOCK_EX | LOCK_NB), 0);
  return fd;
}

TEST(StateLock, IsTakenByTheFolderOrItsFile) {
  const test::TempFolder state;
  EXPECT_EQ(try_state_lock(state / "missing"), StateLock::kFree);
  EXPECT_EQ(try_state_lock(state.path()), StateLock::kFree);
  {
    const base::UniqueFd folder = locked(state.path(), O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(try_state_lock(state.path(), 0ms), StateLock::kTaken) << "the file was removed";
  }
  const auto file = state.write("lock", "");
  EXPECT_EQ(try_state_lock(state.path()), StateLock::kFree);
  {
    const base::UniqueFd lock = locked(file, O_RDWR);
    EXPECT_EQ(try_state_lock(state.path(), 0ms), StateLock::kTaken);
  }
  EXPECT_EQ(try_state_lock(state.path()), StateLock::kFree) << "what was tried is given back";
}

TEST(StateLock, WhatCannotBeOpenedSaysNothing) {
  const test::TempFolder state;
  std::filesystem::create_symlink("/dev/null", state / "lock");
  EXPECT_EQ(try_state_lock(state.path()), StateLock::kUnknown);
}

TEST(StateLock, ANumberIsTheDaemonsIfItHasTheFileOpen) {
  const test::TempFolder state;
  EXPECT_FALSE(is_locked_here(state.path()));
  for (const std::string text : {"", "0", "-1", "x", "4194305"}) {
    state.write("lock", text);
    EXPECT_FALSE(is_locked_here(state.path())) << text;
  }
  const auto file = state.write("lock", std::to_string(::getpid()));
  EXPECT_FALSE(is_locked_here(state.path())) << "the number is used again";
  const base::UniqueFd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(is_locked_here(state.path()));
}

}  // namespace
}  // namespace meshloom::launch
