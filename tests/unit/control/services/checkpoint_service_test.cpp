// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are listed, read, deleted and exported over real gRPC, with fake runs.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <fstream>
#include <map>

#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/export_digests.h"
#include "daemon/train/files/manifest.h"
#include "tests/unit/control/fake_daemon.h"
#include "tests/unit/control/fake_manifest.h"
#include "tests/unit/control/status_info.h"

namespace meshloom::control {
namespace {

class CheckpointServiceTest : public ::testing::Test {
 protected:
  /// "first": checkpoints of steps 4, 8 and 10, and an export.
  void train() {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2);
    checkpoints_ = v1::CheckpointService::NewStub(daemon_->channel());
    submit("first");
  }
  void submit(const std::string& name) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    auto& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(10);
    run.mutable_checkpoint()->set_interval(4);
    run.mutable_export_()->set_hf_folder("hf");
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const auto jobs = v1::JobService::NewStub(daemon_->channel());
    ASSERT_TRUE(jobs->SubmitJob(&context, request, &response).ok());
    daemon_->wait_for(name, v1::JOB_STATE_SUCCEEDED);
  }
  static std::string reason_of(const grpc::Status& status) { return info_of(status).reason(); }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
};

TEST_F(CheckpointServiceTest, CheckpointsAreListedAndReadWithDigests) {
  train();
  const std::filesystem::path checkpoints = daemon_->state().checkpoints("first");
  std::filesystem::create_directories(checkpoints / "step-99");  // not complete
  write_manifest(checkpoints / "step-4", 4);
  grpc::ClientContext context;
  v1::ListCheckpointsRequest list;
  list.set_job("first");
  list.set_page_size(3);
  v1::ListCheckpointsResponse page;
  ASSERT_TRUE(checkpoints_->ListCheckpoints(&context, list, &page).ok());
  ASSERT_EQ(page.checkpoints_size(), 3);
  EXPECT_EQ(page.checkpoints(0).name(), "checkpoints/first/step-4");
  EXPECT_GT(page.checkpoints(0).size_bytes(), 3'000'000);
  list.set_page_token(page.next_page_token());
  grpc::ClientContext next;
  ASSERT_TRUE(checkpoints_->ListCheckpoints(&next, list, &page).ok());
  EXPECT_EQ(page.checkpoints(page.checkpoints_size() - 1).name(), "checkpoints/first/hf");
  EXPECT_TRUE(page.next_page_token().empty());

  grpc::ClientContext reading;
  v1::ReadCheckpointRequest read;
  read.set_name("checkpoints/first/step-4");
  const auto reader = checkpoints_->ReadCheckpoint(&reading, read);
  std::map<std::string, std::string> files;
  v1::ReadCheckpointResponse piece;
  while (reader->Read(&piece)) {
    EXPECT_EQ(piece.offset(), static_cast<std::int64_t>(files[piece.file()].size()));
    files[piece.file()] += piece.data();
    if (piece.xxh3_128().empty()) continue;
    const auto& whole = files[piece.file()];
    const auto hash = XXH3_128bits(whole.data(), whole.size());
    EXPECT_EQ(piece.xxh3_128(), fmt::format("{:016x}{:016x}", hash.high64, hash.low64));
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(files.size(), 2u);
  EXPECT_EQ(files["weights.bin"].size(), 3'000'000u);
}

TEST_F(CheckpointServiceTest, LinksOutOfTheStateDirAreNotFollowed) {
  train();
  std::filesystem::create_symlink("/etc/passwd",
                                  daemon_->state().checkpoints("first") / "step-4" / "passwd");
  grpc::ClientContext context;
  v1::ReadCheckpointRequest read;
  read.set_name("checkpoints/first/step-4");
  const auto reader = checkpoints_->ReadCheckpoint(&context, read);
  v1::ReadCheckpointResponse piece;
  while (reader->Read(&piece)) EXPECT_NE(piece.file(), "passwd");
}

TEST_F(CheckpointServiceTest, CheckpointsAreDeletedOneByOneAndOnce) {
  train();
  const auto remove = [&](const std::string& name, bool force = false, const std::string& id = "") {
    grpc::ClientContext context;
    v1::DeleteCheckpointRequest request;
    request.set_request_id(id);
    request.set_name("checkpoints/first/" + name);
    request.set_force(force);
    v1::DeleteCheckpointResponse response;
    return checkpoints_->DeleteCheckpoint(&context, request, &response);
  };
  const auto folder = daemon_->state().checkpoints("first");
  EXPECT_EQ(reason_of(remove("step-10")), "CHECKPOINT_IS_LAST");
  EXPECT_EQ(reason_of(remove("step-9")), "CHECKPOINT_NOT_FOUND");
  EXPECT_TRUE(remove("step-10", true, "one").ok());
  EXPECT_TRUE(remove("step-10", true, "one").ok()) << "a repeat";
  EXPECT_EQ(reason_of(remove("step-10", true, "two")), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(reason_of(remove("step-8", true, "one")), "REQUEST_ID_REUSED");
  EXPECT_EQ(daemon_->store().get("first").checkpoint_step(), 8);
  EXPECT_FALSE(std::filesystem::exists(folder / "step-10"));
  EXPECT_TRUE(remove("step-4").ok());
  EXPECT_TRUE(remove("hf").ok());
  EXPECT_EQ(daemon_->store().get("first").hf_folder(), "");
  EXPECT_TRUE(std::filesystem::exists(folder / "step-8"));
  EXPECT_EQ(reason_of(remove("metrics.jsonl")), "CHECKPOINT_NOT_FOUND");
}

TEST_F(CheckpointServiceTest, AnExportThatCannotBeReadIsToldByItsReason) {
  train();
  const auto reason = [&](const std::string& name, const std::string& dtype = "") {
    grpc::ClientContext context;
    v1::ExportCheckpointRequest request;
    request.set_name(name);
    request.set_dtype(dtype);
    const auto stream = checkpoints_->ExportCheckpoint(&context, request);
    v1::ExportCheckpointResponse response;
    while (stream->Read(&response)) EXPECT_FALSE(response.has_exported());
    return reason_of(stream->Finish());
  };
  EXPECT_EQ(reason("checkpoints/first/step-8"), "CHECKPOINT_DAMAGED") << "its manifest is {}";
  EXPECT_EQ(reason("checkpoints/first"), "CHECKPOINT_DAMAGED") << "the newest";
  EXPECT_EQ(reason("checkpoints/first/hf"), "ALREADY_EXPORTED");
  EXPECT_EQ(reason("checkpoints/first/step-7"), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(reason("checkpoints/other"), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(reason("step-8"), "NAME_INVALID");
  for (const auto& item : std::filesystem::directory_iterator(daemon_->state().job("first")))
    EXPECT_EQ(item.path().filename().string().find("hf-step"), std::string::npos);
}

TEST_F(CheckpointServiceTest, WhatGoesWithACheckpointIsComparedWhenItIsDownloaded) {
  train();
  const auto folder = daemon_->state().checkpoints("first") / "step-10";
  std::filesystem::remove(folder / train::kManifestName);
  std::ofstream(folder / "tokenizer.json") << "as it was";
  train::Manifest manifest;
  manifest.step = 10;
  manifest.model_config = manifest.run_config = "{}";
  manifest.other_files.push_back(
      {"tokenizer.json", 9, train::digest_of_file(folder / "tokenizer.json")});
  std::ofstream(folder / train::kManifestName) << train::manifest_to_json(manifest);
  const auto reason = [&] {
    grpc::ClientContext context;
    v1::ReadCheckpointRequest request;
    request.set_name("checkpoints/first/step-10");
    const auto stream = checkpoints_->ReadCheckpoint(&context, request);
    v1::ReadCheckpointResponse response;
    while (stream->Read(&response)) continue;
    return reason_of(stream->Finish());
  };
  EXPECT_EQ(reason(), "");
  std::ofstream(folder / "tokenizer.json") << "otherwise";
  EXPECT_EQ(reason(), "CHECKPOINT_DAMAGED");
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_EQ(reason(), "CHECKPOINT_DAMAGED");
}

TEST_F(CheckpointServiceTest, AnExportIsComparedWithItsDigestsWhereItHasThem) {
  train();
  const auto folder = daemon_->state().job("first") / "hf";
  bool compared = false;
  const auto reason = [&] {
    grpc::ClientContext context;
    v1::ReadCheckpointRequest request;
    request.set_name("checkpoints/first/hf");
    const auto stream = checkpoints_->ReadCheckpoint(&context, request);
    v1::ReadCheckpointResponse response;
    while (stream->Read(&response)) compared = response.compared();
    return reason_of(stream->Finish());
  };
  const auto listed = [&](bool verify = true) {
    grpc::ClientContext context;
    v1::ListCheckpointsRequest request;
    request.set_job("first");
    request.set_verify(verify);
    v1::ListCheckpointsResponse response;
    EXPECT_TRUE(checkpoints_->ListCheckpoints(&context, request, &response).ok());
    return response.checkpoints(response.checkpoints_size() - 1);
  };
  EXPECT_EQ(reason(), "");
  EXPECT_FALSE(compared) << "one of an older daemon";
  EXPECT_TRUE(listed().without_digests());

  std::ofstream(folder / "weights") << "as it was";
  const train::ManifestFile weights{"weights", 9, train::digest_of_file(folder / "weights")};
  std::ofstream(folder / train::kExportDigestsName) << train::export_digests_to_json({&weights, 1});
  EXPECT_EQ(reason(), "");
  EXPECT_TRUE(compared);
  EXPECT_FALSE(listed().without_digests());
  std::ofstream(folder / "weights") << "otherwise";
  EXPECT_EQ(reason(), "CHECKPOINT_DAMAGED");
  EXPECT_NE(listed(false).damage().find("weights"), std::string::npos)
      << listed(false).damage() << ": a download found more";
  std::filesystem::remove(folder / "weights");
  EXPECT_EQ(reason(), "CHECKPOINT_DAMAGED");
  EXPECT_NE(listed().damage().find("weights"), std::string::npos);
}

TEST_F(CheckpointServiceTest, TheListTellsWhatIsDamaged) {
  train();
  const auto folder = daemon_->state().checkpoints("first") / "step-8";
  const auto weights = folder / "weights.bin";
  write_manifest(folder, 8);
  const auto damage = [&](const std::string& name, bool verify = false) {
    grpc::ClientContext context;
    v1::ListCheckpointsRequest request;
    request.set_job("first");
    request.set_verify(verify);
    v1::ListCheckpointsResponse response;
    EXPECT_TRUE(checkpoints_->ListCheckpoints(&context, request, &response).ok());
    for (const v1::Checkpoint& checkpoint : response.checkpoints())
      if (checkpoint.name() == "checkpoints/first/" + name) return checkpoint.damage();
    return std::string("not listed");
  };
  EXPECT_EQ(damage("step-8"), "");
  EXPECT_EQ(damage("step-8", true), "");
  EXPECT_NE(damage("step-10").find("manifest.json"), std::string::npos) << damage("step-10");
  EXPECT_NE(damage("hf"), "") << "its config.json is {}";
  EXPECT_EQ(damage("step-9"), "not listed");

  std::fstream(weights, std::ios::in | std::ios::out | std::ios::binary).seekp(1000).put('x');
  EXPECT_EQ(damage("step-8"), "") << "sizes alone";
  EXPECT_NE(damage("step-8", true).find("XXH3-128"), std::string::npos);
  EXPECT_NE(damage("step-8").find("XXH3-128"), std::string::npos) << "what was found is kept";
  std::fstream(weights, std::ios::in | std::ios::out | std::ios::binary).seekp(1000).put('w');
  EXPECT_EQ(damage("step-8"), "") << "its file has changed since";
  EXPECT_EQ(damage("step-8", true), "");
  std::filesystem::resize_file(weights, 1000);
  EXPECT_NE(damage("step-8").find("1000 bytes instead of 3000000"), std::string::npos);
  std::filesystem::remove(weights);
  EXPECT_NE(damage("step-8").find("weights.bin"), std::string::npos);
}

TEST_F(CheckpointServiceTest, PagesShowEachCheckpointOnceWhateverComesAndGoesMeanwhile) {
  train();
  submit("second");
  const auto folder = daemon_->state().checkpoints("first");
  write_manifest(folder / "step-8", 8);
  v1::ListCheckpointsRequest request;
  request.set_page_size(1);
  request.set_verify(true);
  const auto next = [&] {
    grpc::ClientContext context;
    v1::ListCheckpointsResponse page;
    const auto status = checkpoints_->ListCheckpoints(&context, request, &page);
    EXPECT_TRUE(status.ok()) << status.error_message();
    request.set_page_token(page.next_page_token());
    EXPECT_LE(page.checkpoints_size(), 1);
    return page.checkpoints_size() == 0 ? std::string() : page.checkpoints(0).name();
  };
  EXPECT_EQ(next(), "checkpoints/first/step-4");
  // What was shown goes, and its like comes in front of it.
  std::filesystem::remove_all(folder / "step-4");
  std::filesystem::create_directories(folder / "step-2");
  write_manifest(folder / "step-2", 2);
  EXPECT_EQ(next(), "checkpoints/first/step-8");
  EXPECT_EQ(next(), "checkpoints/first/step-10");
  std::filesystem::create_directories(folder / "step-12");
  write_manifest(folder / "step-12", 12);
  EXPECT_EQ(next(), "checkpoints/first/step-12");
  EXPECT_EQ(next(), "checkpoints/first/hf");
  EXPECT_EQ(next(), "checkpoints/second/step-4");
  daemon_->store().remove("second", {});
  EXPECT_EQ(next(), "");
  EXPECT_EQ(request.page_token(), "");

  // The last page says that it is.
  request.set_job("first");
  std::vector<std::string> names;
  do names.push_back(next());
  while (!request.page_token().empty());
  const std::string first = "checkpoints/first/";
  EXPECT_EQ(names, (std::vector<std::string>{first + "step-2", first + "step-8", first + "step-10",
                                             first + "step-12", first + "hf"}));
  request.set_page_token("00000000.0/first/step-2");
  grpc::ClientContext context;
  v1::ListCheckpointsResponse page;
  EXPECT_EQ(reason_of(checkpoints_->ListCheckpoints(&context, request, &page)),
            "PAGE_TOKEN_INVALID");
}

TEST_F(CheckpointServiceTest, WhatIsDeletedMeanwhileIsNoDamage) {
  const auto damaged = [] { throw DataLoss("half of it", "CHECKPOINT_DAMAGED"); };
  EXPECT_THROW(read_checkpoint("it", folder_ / "gone", damaged), NotFound);
  EXPECT_THROW(read_checkpoint("it", folder_.path(), damaged), DataLoss);
  EXPECT_THROW(read_checkpoint("it", folder_ / "gone", [] { throw Unavailable("it stops", "S"); }),
               Unavailable);
}

}  // namespace
}  // namespace meshloom::control
