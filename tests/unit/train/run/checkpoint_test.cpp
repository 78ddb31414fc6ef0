// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "daemon/train/files/checkpoint_check.h"
#include "daemon/train/files/piece.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/train/files/failpoint_file_system.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Tensors of odd shapes: rows that do not divide, fewer rows than ranks, no dims, no elements.
std::vector<StateTensor> make_state(ExecutionContext& context, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1.0f, 1.0f);
  std::vector<StateTensor> state;
  const std::vector<Shape> shapes = {{7, 5}, {1, 3}, {2}, {}, {0, 4}, {13, 2, 3}, {1000, 300}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::vector<float> data(static_cast<std::size_t>(numel(shapes[i])));
    for (float& value : data) value = values(random);
    state.push_back({"model.tensor_" + std::to_string(i),
                     from_values(context, shapes[i], std::span<const float>(data))});
  }
  return state;
}

Manifest manifest_of(std::int64_t step) {
  Manifest manifest;
  manifest.step = step;
  manifest.data_position = step * 8;
  manifest.tokens = step * 800;
  manifest.seed = 17;
  manifest.compute = {"avx2", "1", 2, 1, "fsdp=2,tp=2", "0,0,1,1; table 1"};
  manifest.model_config = R"({"model_type": "gpt2"})";
  manifest.run_config = R"({"training": {"steps": "20"}})";
  return manifest;
}

void expect_state(const fs::path& folder, unsigned seed) {
  testing::TestContext context;
  const Manifest manifest = read_manifest(folder);
  verify_files(folder, manifest);
  const CheckpointReader reader(folder, manifest);
  for (const StateTensor& expected : make_state(context, seed)) {
    const Tensor found = empty(context, expected.tensor.shape(), DType::kFloat32);
    reader.read(expected.name, found);
    EXPECT_EQ(found.to_vector(), expected.tensor.to_vector()) << expected.name;
  }
}

void write_alone(const CheckpointLocation& location, std::int64_t step, unsigned seed) {
  testing::TestContext context;
  const auto world = testing::make_single_world();
  write_checkpoint(*world, location, manifest_of(step), make_state(context, seed));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void flip_byte(const fs::path& path, std::int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char value = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(value);
}

class CheckpointTest : public ::testing::Test {
 protected:
  std::optional<FoundCheckpoint> find(bool fallback = false) {
    const auto world = testing::make_single_world();
    return find_checkpoint(*world, location_, fallback);
  }
  std::string load_error() {
    try {
      find();
    } catch (const DataLoss& error) {
      return error.what();
    }
    return "no DataLoss";
  }

  test::TempFolder folder_;
  CheckpointLocation location_ = {folder_.path() / "checkpoints", 2, {}, nullptr};
};

TEST_F(CheckpointTest, AnyNumberOfRanksWritesAndOneReadsTheSameBits) {
  for (const int ranks : {1, 2, 3, 5}) {
    testing::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      write_checkpoint(world, location_, manifest_of(ranks), make_state(context, 5));
    });
    const fs::path folder = location_.directory / ("step-" + std::to_string(ranks));
    EXPECT_EQ(read_manifest(folder).files.size(), static_cast<std::size_t>(ranks));
    expect_state(folder, 5);
  }
}

TEST_F(CheckpointTest, ManifestComesBackWhole) {
  write_alone(location_, 3, 1);
  const Manifest manifest = read_manifest(location_.directory / "step-3");
  EXPECT_EQ(manifest.step, 3);
  EXPECT_EQ(manifest.data_position, 24);
  EXPECT_EQ(manifest.tokens, 2400);
  EXPECT_EQ(manifest.seed, 17u);
  EXPECT_EQ(manifest.compute, (ComputeClass{"avx2", "1", 2, 1, "fsdp=2,tp=2", "0,0,1,1; table 1"}));
  EXPECT_THAT(manifest.model_config, HasSubstr("gpt2"));
  EXPECT_EQ(manifest.tensors.size(), 7u);
  EXPECT_EQ(manifest.files.at(0).bytes,
            fs::file_size(location_.directory / "step-3" / manifest.files.at(0).name));
}

TEST_F(CheckpointTest, KeepsTheLatest) {
  for (const std::int64_t step : {2, 10, 9, 100}) write_alone(location_, step, 1);
  EXPECT_THAT(names_in(location_.directory), ElementsAre("step-10", "step-100"));
  EXPECT_EQ(find()->manifest.step, 100);
}

TEST_F(CheckpointTest, ReplacesACheckpointOfTheSameStep) {
  write_alone(location_, 4, 1);
  write_alone(location_, 4, 2);
  EXPECT_THAT(names_in(location_.directory), ElementsAre("step-4"));
  expect_state(location_.directory / "step-4", 2);
}

TEST_F(CheckpointTest, NothingThereIsNoCheckpoint) { EXPECT_FALSE(find().has_value()); }

TEST_F(CheckpointTest, NamesTheDamagedFile) {
  write_alone(location_, 5, 1);
  const fs::path folder = location_.directory / "step-5";
  const fs::path shard = folder / read_manifest(folder).files.at(0).name;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(shard));
  for (const std::int64_t at : {std::int64_t{0}, bytes / 2, bytes - 1}) {
    flip_byte(shard, at);
    EXPECT_THAT(load_error(), HasSubstr(shard.string()));
    flip_byte(shard, at);
    EXPECT_NO_THROW(find());
  }
  fs::resize_file(shard, static_cast<std::uintmax_t>(bytes - 1));
  EXPECT_THAT(load_error(), HasSubstr(fmt::format("{} bytes instead of {}", bytes - 1, bytes)));
  fs::remove(shard);
  EXPECT_THAT(load_error(), HasSubstr(shard.string()));
}

TEST_F(CheckpointTest, EveryFlippedByteOfTheManifestIsNoticed) {
  write_alone(location_, 5, 1);
  const fs::path manifest = location_.directory / "step-5" / kManifestName;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(manifest));
  for (std::int64_t at = 0; at < bytes - 1; at += 7) {
    flip_byte(manifest, at);
    // White space between tokens may change without changing what the manifest says.
    const std::string error = load_error();
    if (error == "no DataLoss") {
      EXPECT_EQ(read_manifest(manifest.parent_path()).step, 5);
    }
    flip_byte(manifest, at);
  }
}

TEST_F(CheckpointTest, AFolderWithoutManifestIsNoCheckpointForAnybody) {
  write_alone(location_, 5, 1);
  write_alone(location_, 6, 2);
  const fs::path folder = location_.directory / "step-6";
  fs::remove(folder / kManifestName);
  EXPECT_FALSE(is_checkpoint(folder));
  EXPECT_THROW(read_manifest(folder), NotFound);
  ASSERT_EQ(list_checkpoints(location_.directory).size(), 1u);
  EXPECT_EQ(find()->manifest.step, 5);
  write_alone(location_, 6, 3);
  expect_state(folder, 3);
}

TEST_F(CheckpointTest, AFileThatGoesAlongAndChangesIsNoDamageToTheState) {
  testing::TestContext context;
  const auto world = testing::make_single_world();
  const std::vector<CarriedFile> carried = {{"tokenizer.json", "{}"}};
  const fs::path folder =
      write_checkpoint(*world, location_, manifest_of(2), make_state(context, 2), carried);
  EXPECT_TRUE(find()->notes.empty());
  expect_state(folder, 2);
  flip_byte(folder / "tokenizer.json", 0);
  const auto found = find(true);
  EXPECT_EQ(found->folder, folder);
  EXPECT_THAT(found->notes, ElementsAre(HasSubstr("tokenizer.json")));
  EXPECT_THROW(verify_other_files(folder, found->manifest), DataLoss);
  fs::remove(folder / "tokenizer.json");
  EXPECT_THAT(find()->notes, ElementsAre(HasSubstr("tokenizer.json")));
}

TEST_F(CheckpointTest, AFileThatGoesAlongIsNoneOfTheWeights) {
  for (const char* name : {"config.json", "model.safetensors", "model-00001-of-00002.safetensors",
                           "model.safetensors.index.json", "manifest.json", "../x", ""}) {
    Manifest manifest = manifest_of(1);
    manifest.other_files = {{name, 2, std::string(32, '0')}};
    EXPECT_THROW(manifest_from_json(manifest_to_json(manifest), "x"), DataLoss) << name;
  }
  Manifest manifest = manifest_of(1);
  manifest.other_files = {{"generation_config.json", 2, std::string(32, '0')}};
  EXPECT_EQ(manifest_from_json(manifest_to_json(manifest), "x").other_files.size(), 1u);
}

TEST_F(CheckpointTest, AnOlderOneIsTakenOnlyWhereNoStepWasNamed) {
  const CheckpointLocation all = {location_.directory, 5, {}, nullptr};
  for (const std::int64_t step : {3, 4, 5, 6}) write_alone(all, step, static_cast<unsigned>(step));
  const fs::path named = all.directory / "step-5";
  const auto world = testing::make_single_world();
  EXPECT_EQ(open_checkpoint_or_older(*world, named).folder, named);
  flip_byte(named / read_manifest(named).files.at(0).name, 5000);
  EXPECT_THROW(open_checkpoint(*world, named), DataLoss);
  const FoundCheckpoint older = open_checkpoint_or_older(*world, named);
  EXPECT_EQ(older.manifest.step, 4);
  EXPECT_THAT(older.notes, ElementsAre(HasSubstr("step-5"), HasSubstr("resumed from step-4")));
  EXPECT_THAT(names_in(all.directory), ElementsAre("step-3", "step-4", "step-5", "step-6"))
      << "another job's checkpoints stay as they are";
}

TEST_F(CheckpointTest, FallsBackOnlyWhenAskedAndSaysSo) {
  write_alone(location_, 5, 1);
  write_alone(location_, 6, 2);
  const fs::path folder = location_.directory / "step-6";
  flip_byte(folder / read_manifest(folder).files.at(0).name, 5000);
  EXPECT_THAT(load_error(), HasSubstr("step-6"));
  const auto found = find(true);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->manifest.step, 5);
  EXPECT_THAT(found->notes, ElementsAre(HasSubstr("step-6"), HasSubstr("resumed from step-5")));
  expect_state(found->folder, 1);
  EXPECT_THAT(names_in(location_.directory), ElementsAre("damaged-step-6", "step-5"));
  EXPECT_EQ(find()->manifest.step, 5)
      << "a damaged checkpoint that was passed over is not tried again";
}

TEST_F(CheckpointTest, AllDamagedIsAnErrorEvenWithFallback) {
  write_alone(location_, 5, 1);
  fs::resize_file(location_.directory / "step-5" / kManifestName, 20);
  EXPECT_THROW(find(true), DataLoss);
}

TEST_F(CheckpointTest, RefusesANewerFormat) {
  Manifest manifest = manifest_of(1);
  std::string text = manifest_to_json(manifest);
  EXPECT_EQ(manifest_from_json(text, "x").step, 1);
  EXPECT_THROW(manifest_from_json("{}", "x"), DataLoss);
  EXPECT_THROW(manifest_from_json(text.substr(0, text.size() / 2), "x"), DataLoss);
}

TEST_F(CheckpointTest, ReaderRefusesAnotherShape) {
  write_alone(location_, 5, 1);
  const fs::path folder = location_.directory / "step-5";
  testing::TestContext context;
  const CheckpointReader reader(folder, read_manifest(folder));
  EXPECT_THROW(reader.read("model.tensor_0", empty(context, {5, 7}, DType::kFloat32)),
               FailedPrecondition);
  EXPECT_THROW(reader.read("model.other", empty(context, {5, 7}, DType::kFloat32)), NotFound);
}

TEST_F(CheckpointTest, AFullDiskFailsOnEveryRankAndLeavesNothingNew) {
  write_alone(location_, 1, 1);
  for (int failing = 0; failing < 2; ++failing) {
    testing::run_ranks(2, [&](comm::ProcessGroup& world) {
      testing::TestContext context;
      testing::FailpointFileSystem files([&](int n) {
        // The shard's first writes; what is cleaned up afterwards works again.
        if (world.rank() == failing && n >= 3 && n < 6)
          throw ResourceExhausted("cannot write shard: No space left on device", "DISK_FULL",
                                  {{"errno", "28"}});
      });
      const CheckpointLocation location = {location_.directory, 2, {}, &files};
      try {
        write_checkpoint(world, location, manifest_of(2), make_state(context, 2));
        ADD_FAILURE() << "rank " << world.rank() << " was not told";
      } catch (const ResourceExhausted& error) {
        EXPECT_EQ(error.reason(), "DISK_FULL");
        EXPECT_EQ(error.metadata().at("rank"), std::to_string(failing));
      }
    });
    remove_leftovers(location_.files(), location_.directory);
    EXPECT_THAT(names_in(location_.directory), ElementsAre("step-1"));
    expect_state(location_.directory / "step-1", 1);
  }
}

TEST(CheckpointPiece, OfOtherElementsInEveryRowIsRefused) {
  const auto mesh = std::make_shared<const planner::MeshLayout>(
      std::vector<planner::MeshDim>{{"fsdp", 1}, {"tp", 2}});
  const auto order =
      planner::DimOrder::listed_by_row(4, 0, {{{{0, 2}}, {{2, 4}}}, {{{1, 3}}, {{0, 1}, {3, 4}}}});
  const auto spec = std::make_shared<const planner::DTensorSpec>(
      mesh, planner::Placements{planner::Placement::replicate(), planner::Placement::shard(1)},
      Shape{2, 4}, planner::ShardOrder{}, std::vector<planner::DimOrderPtr>{nullptr, order});
  try {
    held_piece({2, 4}, spec, 1);
    ADD_FAILURE() << "one row's list was taken for all rows";
  } catch (const Unimplemented& error) {
    EXPECT_THAT(error.what(), HasSubstr("[2, 4]"));
    EXPECT_THAT(error.what(), HasSubstr("by row of dim 0"));
  }
}

}  // namespace
}  // namespace meshloom::train
