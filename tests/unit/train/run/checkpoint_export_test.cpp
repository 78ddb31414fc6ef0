// SPDX-License-Identifier: Apache-2.0
// Checkpoints of any mesh as Hugging Face folders: the bytes that the run itself exports.
#include "daemon/train/run/checkpoint_export.h"

#include <fstream>
#include <sstream>

#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/unfinished_folder.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& item : fs::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(item.path(), std::ios::binary).rdbuf();
    files[item.path().filename().string()] = text.str();
  }
  return files;
}

class CheckpointExportTest : public RunFixture {
 protected:
  /// A checkpoint after two steps, and what the run exports there in every dtype, in `made`.
  fs::path train(const MeshSize& m) {
    folder_.write_text("generation_config.json", R"({"max_new_tokens": 5})");
    v1::RunConfig c = config(7);
    c.mutable_mesh()->set_dp(m.dp);
    c.mutable_mesh()->set_fsdp(m.fsdp);
    c.mutable_mesh()->set_tp(m.tp);
    fs::path checkpoint;
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, c, made_ / "checkpoints");
      Trace trace;
      steps(*run, 2, trace);
      const fs::path saved = run->save_state();
      for (const char* dtype : kDTypes) run->export_hf(made_ / dtype, dtype);
      if (world.rank() == 0) checkpoint = saved;
    });
    return checkpoint;
  }
  static constexpr std::array<const char*, 3> kDTypes = {"float32", "bfloat16", "float16"};

  test::TempFolder made_;
};

TEST_F(CheckpointExportTest, AnyMeshsCheckpointGivesTheFolderThatItsRunExports) {
  for (const MeshSize& m :
       std::vector<MeshSize>{{1, 1, 1}, {2, 1, 1}, {1, 3, 1}, {1, 1, 3}, {1, 2, 2}}) {
    SCOPED_TRACE(fmt::format("dp{} fsdp{} tp{}", m.dp, m.fsdp, m.tp));
    fs::remove_all(made_ / "checkpoints");
    const fs::path checkpoint = train(m);
    for (const char* dtype : kDTypes) {
      CheckpointExport options;
      options.dtype = *dtype_from_name(dtype);
      std::int64_t done = 0, total = 0;
      options.progress = [&](std::int64_t now, std::int64_t all) {
        EXPECT_GE(now, done);
        done = now;
        total = all;
      };
      export_checkpoint(checkpoint, made_ / "out", options);
      EXPECT_EQ(files_of(made_ / "out"), files_of(made_ / dtype)) << dtype;
      EXPECT_TRUE(fs::exists(made_ / "out/generation_config.json"));
      EXPECT_GT(total, 0);
      EXPECT_EQ(done, total);
    }
  }
}

TEST_F(CheckpointExportTest, AWeightThatTheDtypeDoesNotReachIsRefusedByItsName) {
  // After one step of this rate every weight is far beyond float16.
  v1::RunConfig c = config(7);
  c.mutable_optimizer()->set_lr(1e6);
  c.mutable_lr_scheduler()->set_warmup_steps(0);
  for (const MeshSize& m : {MeshSize{1, 1, 1}, MeshSize{1, 2, 1}}) {
    set_mesh(c, m);
    fs::path checkpoint;
    testing::run_ranks(m.ranks(), [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      const auto run = create(world, context, c, made_ / "checkpoints");
      Trace trace;
      steps(*run, 1, trace);
      try {
        run->export_hf(made_ / "hf", "float16");
        ADD_FAILURE() << "rank " << world.rank() << " exported";
      } catch (const FailedPrecondition& error) {
        EXPECT_EQ(error.reason(), kValueOverflows);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("which is infinite in float16"));
      }
      run->export_hf(made_ / "hf", "float32");  // goes on
      const fs::path saved = run->save_state();
      if (world.rank() == 0) checkpoint = saved;
    });
    try {
      export_checkpoint(checkpoint, made_ / "out", {.dtype = DType::kFloat16});
      ADD_FAILURE() << "was exported";
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), kValueOverflows);
    }
    EXPECT_FALSE(fs::exists(made_ / "out"));
    fs::remove_all(made_ / "checkpoints");
  }
}

TEST_F(CheckpointExportTest, ADamagedOrInterruptedExportLeavesNothing) {
  const fs::path checkpoint = train({1, 2, 1});
  CheckpointExport options;
  int calls = 0, last = 0;
  options.progress = [&](std::int64_t, std::int64_t) {
    if (++calls == last) throw Unavailable("stop", "STOPPING");
  };
  export_checkpoint(checkpoint, made_ / "whole", options);
  const int all = calls;
  ASSERT_GT(all, 4);
  // While files are read, and while they are written.
  for (const int stopped_at : {1, 2, all / 2, all - 1}) {
    last = stopped_at;
    calls = 0;
    EXPECT_THROW(export_checkpoint(checkpoint, made_ / "stopped/hf", options), Unavailable);
    EXPECT_TRUE(!fs::exists(made_ / "stopped") || fs::is_empty(made_ / "stopped")) << stopped_at;
  }
  EXPECT_THROW(export_checkpoint(made_ / "nothing", made_ / "hf", {}), NotFound);

  const fs::path shard = checkpoint / read_manifest(checkpoint).files[1].name;
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  file.put('!');
  file.close();
  try {
    export_checkpoint(checkpoint, made_ / "hf", {});
    FAIL();
  } catch (const DataLoss& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(shard.filename().string()));
  }
  EXPECT_FALSE(fs::exists(made_ / "hf"));
}

TEST_F(CheckpointExportTest, DiscardingIsOneStep) {
  const fs::path checkpoint = train({1, 1, 1});
  discard_folder(posix_file_system(), checkpoint);
  EXPECT_TRUE(fs::is_empty(checkpoint.parent_path()));
  EXPECT_THROW(discard_folder(posix_file_system(), checkpoint), IoError);
}

}  // namespace
}  // namespace meshloom::train
