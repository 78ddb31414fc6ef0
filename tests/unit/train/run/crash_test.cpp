// SPDX-License-Identifier: Apache-2.0
// Stops the writer at every operation on the disk, with a real process that dies, and looks at what
// is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/train/files/failpoint_file_system.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

constexpr int kCrashed = 77;

std::vector<StateTensor> state_of(ExecutionContext& context, double value) {
  return {{"model.a", full(context, {64, 33}, value, DType::kFloat32)},
          {"model.b", full(context, {5}, -value, DType::kFloat32)}};
}

Manifest bare_manifest(std::int64_t step) {
  Manifest manifest;
  manifest.step = step;
  manifest.model_config = manifest.run_config = "{}";
  return manifest;
}

void save(const CheckpointLocation& location, std::int64_t step) {
  testing::TestContext context;
  const auto world = testing::make_single_world();
  write_checkpoint(*world, location, bare_manifest(step),
                   state_of(context, static_cast<double>(step)));
}

/// Runs body in a child; returns its exit status.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The step of the checkpoint that a restart finds, whose values are checked.
std::int64_t restart(const CheckpointLocation& location) {
  remove_leftovers(location.files(), location.directory);
  const auto world = testing::make_single_world();
  const auto found = find_checkpoint(*world, location, false);
  if (!found) return -1;
  testing::TestContext context;
  const CheckpointReader reader(found->folder, found->manifest);
  for (const StateTensor& expected : state_of(context, static_cast<double>(found->manifest.step))) {
    const Tensor tensor = empty(context, expected.tensor.shape(), DType::kFloat32);
    reader.read(expected.name, tensor);
    EXPECT_EQ(tensor.to_vector(), expected.tensor.to_vector());
  }
  return found->manifest.step;
}

/// `torn`: the operation that dies, if it is a write, has written half of its bytes.
void sweep(std::int64_t next_step, bool torn) {
  int deaths = 0;
  bool saw_old = false;
  bool saw_new = false;
  for (int point = 0;; ++point) {
    const test::TempFolder folder;
    const CheckpointLocation location = {folder.path() / "checkpoints", 2, {}, nullptr};
    save(location, 10);
    save(location, 20);
    const int status = in_child([&] {
      testing::FailpointFileSystem files(
          [&](int n) {
            if (n == point) ::_exit(kCrashed);
          },
          [&](int n, std::size_t bytes) { return torn && n == point ? bytes / 2 : 0; });
      save({location.directory, 2, {}, &files}, next_step);
      return 0;
    });
    const std::int64_t found = restart(location);
    EXPECT_TRUE(found == 20 || found == next_step)
        << "died before operation " << point << ", found step " << found;
    saw_old |= found == 20;
    saw_new |= found == next_step;
    if (status == 0) break;
    ASSERT_EQ(status, kCrashed);
    ++deaths;
    // Life goes on: the next save works and is found.
    save(location, next_step + 10);
    EXPECT_EQ(restart(location), next_step + 10);
  }
  EXPECT_GT(deaths, 12) << "the writer has become too short to be the real one";
  EXPECT_TRUE(saw_old);
  EXPECT_TRUE(saw_new);
}

TEST(CheckpointCrash, EveryPointLeavesTheOldOrTheNew) { sweep(30, false); }

TEST(CheckpointCrash, TornWritesToo) { sweep(30, true); }

TEST(CheckpointCrash, WhenTheSameStepIsWrittenAgain) { sweep(20, false); }

// The file-size limit makes the operating system itself refuse the write.
TEST(CheckpointCrash, ARefusedWriteIsATypedErrorAndKeepsTheOld) {
  const test::TempFolder folder;
  const CheckpointLocation location = {folder.path() / "checkpoints", 2, {}, nullptr};
  save(location, 10);
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(location, 20);
    } catch (const ResourceExhausted& error) {
      return error.metadata().contains("errno") ? 5 : 6;
    }
    return 7;
  });
  EXPECT_EQ(status, 5);
  for (const auto& entry : fs::directory_iterator(location.directory))
    EXPECT_EQ(entry.path().filename(), "step-10");
  EXPECT_EQ(restart(location), 10);
}

}  // namespace
}  // namespace meshloom::train
