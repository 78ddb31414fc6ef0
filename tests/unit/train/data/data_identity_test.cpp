// SPDX-License-Identifier: Apache-2.0
// Data that are no longer those that a run was trained on, and files that shrink under it.
#include "daemon/train/data/data_identity.h"

#include <nlohmann/json.hpp>

#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "tests/support/test_context.h"
#include "tests/unit/train/run/run_fixture.h"

namespace meshloom::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class DataIdentityTest : public RunFixture {
 protected:
  v1::DataIdentity identity_of(const std::string& name) const {
    return identify(TokenStream::open(folder_.path() / name, TokenFormat::kText));
  }
  std::string text() const {
    std::ifstream file(folder_.path() / "text.txt", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Trains two steps and saves.
  void train_first(const fs::path& checkpoints) const {
    const auto world = testing::make_single_world();
    testing::TestContext context;
    Trace trace;
    const auto run = create(*world, context, config(), checkpoints);
    steps(*run, 2, trace);
    run->save_state();
  }
  /// What the run of two ranks that goes on from there says, note or error.
  std::string resume(const v1::RunConfig& wanted, const fs::path& checkpoints) const {
    std::string said[2];
    testing::run_ranks(2, [&](comm::ProcessGroup& world) {
      std::string& mine = said[world.rank()];
      testing::TestContext context;
      try {
        const auto run = create(world, context, wanted, checkpoints);
        EXPECT_EQ(run->step(), 2);
        mine = fmt::format("{}", fmt::join(run->notes(), "\n"));
      } catch (const FailedPrecondition& error) {
        EXPECT_EQ(error.reason(), "DATA_CHANGED");
        mine = error.what();
      }
    });
    EXPECT_EQ(said[0], said[1]);
    return said[0];
  }
};

TEST_F(DataIdentityTest, TellsWhatWasAndWhatIs) {
  folder_.write_text("docs/a.txt", std::string(3 << 20, 'a'));
  folder_.write_text("docs/b.txt", "bb");
  folder_.write_text("docs/empty.txt", "");
  const v1::DataIdentity before = identity_of("docs");
  EXPECT_EQ(before.tokens(), (3 << 20) + 2);
  EXPECT_EQ(before.file_count(), 2);
  EXPECT_EQ(difference(before, identity_of("docs")), "");
  folder_.write_text("docs/b.txt", "bc");
  EXPECT_EQ(difference(before, identity_of("docs")), "b.txt has other contents in its 2 bytes");
  folder_.write_text("docs/b.txt", "bbb");
  EXPECT_THAT(difference(before, identity_of("docs")), HasSubstr("b.txt has 3 bytes, it had 2"));
  folder_.write_text("docs/c.txt", "c");
  fs::remove(folder_.path() / "docs/b.txt");
  const std::string moved = difference(before, identity_of("docs"));
  EXPECT_THAT(moved, HasSubstr("b.txt (2 bytes) is gone"));
  EXPECT_THAT(moved, HasSubstr("c.txt (1 bytes) is new"));
  EXPECT_THAT(moved, HasSubstr("3145729 tokens in 2 files of 3145729 bytes, there were 3145730 "
                               "tokens in 2 files of 3145730 bytes"));
  EXPECT_EQ(difference(before, data_identity_from_json(to_json_text(before))), "");

  // Text that is tokenized later has no tokens yet.
  v1::DataIdentity untokenized = identity_of("docs");
  untokenized.set_tokens(0);
  const std::string unknown = difference(before, untokenized);
  EXPECT_THAT(unknown, HasSubstr("2 files of 3145729 bytes, there were 2 files of 3145730 bytes"));
  EXPECT_THAT(unknown, Not(HasSubstr("tokens")));
}

TEST_F(DataIdentityTest, FirstAndLastMiBAreLookedAt) {
  std::string big(4 << 20, 'x');
  folder_.write_text("big.txt", big);
  const v1::DataIdentity before = identity_of("big.txt");
  for (const std::size_t at : {std::size_t{0}, (std::size_t{1} << 20) - 1, std::size_t{3} << 20,
                               (std::size_t{4} << 20) - 1}) {
    std::string other = big;
    other[at] = 'y';
    folder_.write_text("big.txt", other);
    EXPECT_NE(difference(before, identity_of("big.txt")), "") << at;
  }
}

TEST_F(DataIdentityTest, NamesAndListsOfAnyLengthFit) {
  for (int i = 0; i < 200; ++i) folder_.write_text(fmt::format("many/{:03}\xff", i), "x");
  const v1::DataIdentity before = identity_of("many");
  EXPECT_EQ(before.file_count(), 200);
  EXPECT_EQ(before.files_size(), 64);
  EXPECT_EQ(before.files(0).name(), "000\\xff");
  folder_.write_text("many/150\xff", "y");
  EXPECT_THAT(difference(before, identity_of("many")), HasSubstr("files that are not listed"));
}

TEST_F(DataIdentityTest, AResumeOnOtherDataFailsOrSaysSo) {
  const std::string original = text();
  const std::map<std::string, std::string> changes = {
      {original + "more", "text.txt has 4004 bytes, it had 4000"},
      {"Z" + original.substr(1), "text.txt has other contents in its 4000 bytes"},
      {original.substr(0, 3000), "text.txt has 3000 bytes, it had 4000"}};
  for (const auto& [changed, said] : changes) {
    folder_.write_text("text.txt", original);
    const test::TempFolder checkpoints;
    train_first(checkpoints.path());
    v1::RunConfig wanted = config();
    EXPECT_THAT(resume(wanted, checkpoints.path()), Not(HasSubstr("data")));
    folder_.write_text("text.txt", changed);
    EXPECT_THAT(resume(wanted, checkpoints.path()), HasSubstr(said));
    EXPECT_THAT(resume(wanted, checkpoints.path()), HasSubstr("checkpoint step-2"));
    wanted.mutable_data()->set_allow_changed(true);
    EXPECT_THAT(resume(wanted, checkpoints.path()), HasSubstr("data.allow_changed goes on"));
    // At submission of a job that begins with that checkpoint.
    v1::RunConfig resolved =
        resolve_run_config(config(), {.world_size = 1, .data_dir = folder_.path()});
    try {
      resolve_resume_from(config(), &resolved, checkpoints.path() / "step-2", {folder_.path()});
      ADD_FAILURE() << "other data were accepted";
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "DATA_CHANGED");
    }
    resolved = resolve_run_config(wanted, {.world_size = 1, .data_dir = folder_.path()});
    EXPECT_NO_THROW(
        resolve_resume_from(wanted, &resolved, checkpoints.path() / "step-2", {folder_.path()}));
  }
}

TEST_F(DataIdentityTest, DataThatChangeBetweenSubmissionAndStartAreNoticed) {
  const v1::RunConfig resolved =
      resolve_run_config(config(), {.world_size = 1, .data_dir = folder_.path()});
  ASSERT_EQ(resolved.data().identity().bytes(), 4000);
  folder_.write_text("text.txt", text() + "more");
  const auto world = testing::make_single_world();
  testing::TestContext context;
  RunOptions options;
  options.folders.data_dir = folder_.path();
  options.with_data = true;
  EXPECT_THROW(train::Run::create({&context, world.get()}, resolved, options), FailedPrecondition);
  EXPECT_THROW(resolve_run_config(resolved, {.world_size = 1, .data_dir = folder_.path()}),
               FailedPrecondition);
}

TEST_F(DataIdentityTest, ACheckpointWithoutIdentityIsAcceptedWithANote) {
  const test::TempFolder checkpoints;
  train_first(checkpoints.path());
  const fs::path folder = checkpoints.path() / "step-2";
  Manifest manifest = read_manifest(folder);
  EXPECT_THAT(manifest.data_identity, HasSubstr("\"bytes\":\"4000\""));
  manifest.data_identity.clear();
  std::ofstream(folder / kManifestName) << manifest_to_json(manifest);
  EXPECT_THAT(resume(config(), checkpoints.path()),
              HasSubstr("does not say which data it was trained on"));
}

TEST_F(DataIdentityTest, AFileThatIsCutInTrainingFailsOnAllRanksAlike) {
  folder_.write_text("cut.txt", text() + text());
  v1::RunConfig cut = config();
  cut.mutable_data()->set_path("cut.txt");
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    testing::TestContext context;
    const auto run = create(world, context, cut);
    Trace trace;
    steps(*run, 2, trace);
    world.barrier()->wait_host();
    if (world.rank() == 0) fs::resize_file(folder_.path() / "cut.txt", 10);
    world.barrier()->wait_host();
    try {
      steps(*run, 1, trace);
      ADD_FAILURE() << "rank " << world.rank() << " went on";
    } catch (const IoError& error) {
      EXPECT_EQ(error.reason(), "FILE_TRUNCATED");
      EXPECT_THAT(error.what(), HasSubstr("cut.txt ends at byte 10"));
    }
    const auto next = create(world, context, config());
    steps(*next, 1, trace);
  });
}

}  // namespace
}  // namespace meshloom::train
