// SPDX-License-Identifier: Apache-2.0
// Whose objects are: what each owner sees and may do, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <span>

#include "daemon/base/crc32c.h"
#include "daemon/base/sha256.h"
#include "tests/support/eventually.h"
#include "tests/unit/control/status_info.h"
#include "tests/unit/control/whole_daemon.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class OwnersTest : public ::testing::Test {
 protected:
  explicit OwnersTest(const v1::LimitConfig& limits = {}) : daemon_(limits) {}

  static v1::SubmitJobRequest job(const std::string& name) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    request.mutable_spec()->mutable_run()->mutable_training()->set_steps(1);
    return request;
  }
  grpc::Status submit(const Identity& who, const v1::SubmitJobRequest& request,
                      v1::Job* made = nullptr) {
    v1::SubmitJobResponse response;
    const grpc::Status status = daemon_.ask(who, "JobService", request, &response);
    if (made != nullptr) *made = response.job();
    return status;
  }
  grpc::Status get(const Identity& who, const std::string& name, v1::Job* job = nullptr) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::GetJobResponse response;
    const grpc::Status status = daemon_.ask(who, "JobService", request, &response);
    if (job != nullptr) *job = response.job();
    return status;
  }
  std::vector<std::string> jobs(const Identity& who, bool all = false) {
    v1::ListJobsRequest request;
    request.set_all(all);
    v1::ListJobsResponse response;
    EXPECT_TRUE(daemon_.ask(who, "JobService", request, &response).ok());
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) names.push_back(job.spec().name());
    return names;
  }
  grpc::Status share(const Identity& who, const std::string& name, const std::string& with,
                     bool take_back = false) {
    v1::ShareObjectRequest request;
    request.set_name(name);
    request.set_with(with);
    request.set_take_back(take_back);
    v1::ShareObjectResponse response;
    return daemon_.ask(who, "AccessService", request, &response);
  }
  template <typename Request, typename Response>
  grpc::Status change(const Identity& who, const std::string& service, const std::string& name) {
    Request request;
    request.set_name(name);
    Response response;
    return daemon_.ask(who, service, request, &response);
  }
  grpc::Status cancel(const Identity& who, const std::string& name) {
    return change<v1::CancelJobRequest, v1::CancelJobResponse>(who, "JobService", name);
  }
  /// Jobs in the order in which they are taken.
  std::vector<std::string> queue() { return daemon_.jobs().waiting(); }

  WholeDaemon daemon_;
};

TEST_F(OwnersTest, EachSeesItsOwnAndAdminsSeeAllWhereTheyAsk) {
  ASSERT_TRUE(submit(kAlice, job("a")).ok());
  ASSERT_TRUE(submit(kBob, job("b")).ok());
  ASSERT_TRUE(submit(kRoot, job("c")).ok());
  EXPECT_THAT(jobs(kAlice), ElementsAre("a"));
  EXPECT_THAT(jobs(kAlice, true), ElementsAre("a")) << "all is of admins";
  EXPECT_THAT(jobs(kBob), ElementsAre("b"));
  EXPECT_THAT(jobs(kVera), ElementsAre("a", "b", "c"));
  EXPECT_THAT(jobs(kRoot), ElementsAre("c"));
  EXPECT_THAT(jobs(Identity::admin()), ElementsAre("c")) << "the admins are one owner";
  EXPECT_THAT(jobs(kRoot, true), ElementsAre("a", "b", "c"));
  v1::Job seen;
  ASSERT_TRUE(get(kAlice, "a", &seen).ok());
  EXPECT_EQ(seen.owner(), "alice");
  EXPECT_FALSE(seen.output_dir().empty());
  ASSERT_TRUE(get(kVera, "a", &seen).ok());
  EXPECT_TRUE(seen.output_dir().empty()) << "where the files of others lie is not told";
}

TEST_F(OwnersTest, WhatAModelHasDrawnIsItsOwnersAlone) {
  ASSERT_TRUE(submit(kAlice, job("a")).ok());
  daemon_.jobs().begin_attempt("a");
  v1::DrawnSample sample;
  sample.set_step(1);
  sample.set_text("a secret text");
  daemon_.jobs().publish_samples("a", {sample});
  v1::Job seen;
  // It is told once it is durable.
  ASSERT_TRUE(
      test::eventually([&] { return get(kAlice, "a", &seen).ok() && seen.samples_size() > 0; }));
  EXPECT_THAT(seen.ShortDebugString(), HasSubstr("a secret text"));
  v1::StreamLogsRequest logs;
  logs.set_name("a");
  const auto log_of = [&](const Identity& who) {
    std::string text;
    for (const std::string& message :
         daemon_.call(who, "/meshloom.v1.JobService/StreamLogs", logs).messages)
      text += message;
    return text;
  };
  EXPECT_THAT(log_of(kAlice), HasSubstr("a secret text"));
  for (const Identity& who : {kVera, kRoot}) {
    ASSERT_TRUE(get(who, "a", &seen).ok());
    EXPECT_THAT(seen.ShortDebugString(), Not(HasSubstr("a secret text")));
    EXPECT_THAT(log_of(who), Not(HasSubstr("a secret text")));
    EXPECT_THAT(log_of(who), HasSubstr("preparing"));
  }
}

TEST_F(OwnersTest, OthersChangeNothingAndHearThatItIsNotThere) {
  ASSERT_TRUE(submit(kAlice, job("a")).ok());
  const grpc::Status other = cancel(kBob, "a"), absent = cancel(kBob, "z");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(other.error_message(), "job \"a\" does not exist");
  EXPECT_EQ(absent.error_message(), "job \"z\" does not exist");
  EXPECT_EQ(cancel(kVera, "a").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(daemon_.jobs().get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(cancel(kRoot, "a").ok());
  EXPECT_EQ(daemon_.jobs().get("a").state(), v1::JOB_STATE_CANCELLED);
}

/// Between the look at the gate and the change a name may have become another's.
TEST_F(OwnersTest, TheStoreItselfRefusesToChangeWhatIsAnothers) {
  ASSERT_TRUE(submit(kAlice, job("a")).ok());
  RequestKey key;
  key.by = kBob;
  EXPECT_THROW(daemon_.jobs().cancel("a", key), NotFound);
  EXPECT_THROW(daemon_.jobs().remove("a", key), NotFound);
  key.by = kAlice;
  EXPECT_NO_THROW(daemon_.jobs().cancel("a", key));
}

TEST_F(OwnersTest, RequestIdsAreTheirOwners) {
  v1::SubmitJobRequest request = job("");
  request.set_request_id("the-same");
  v1::Job first, again, other;
  ASSERT_TRUE(submit(kAlice, request, &first).ok());
  ASSERT_TRUE(submit(kAlice, request, &again).ok());
  EXPECT_EQ(first.name(), again.name());
  ASSERT_TRUE(submit(kBob, request, &other).ok());
  EXPECT_NE(other.name(), first.name());
  EXPECT_EQ(other.owner(), "bob");
  // A repeat of what has ended an object is answered, as it is for admins.
  v1::CancelJobRequest cancelling;
  cancelling.set_name(first.name());
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(daemon_.ask(kAlice, "JobService", cancelling, &cancelled).ok());
  v1::DeleteJobRequest deletion;
  deletion.set_request_id("delete-1");
  deletion.set_name(first.name());
  v1::DeleteJobResponse deleted;
  EXPECT_TRUE(daemon_.ask(kAlice, "JobService", deletion, &deleted).ok());
  EXPECT_TRUE(daemon_.ask(kAlice, "JobService", deletion, &deleted).ok());
  EXPECT_EQ(daemon_.ask(kBob, "JobService", deletion, &deleted).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(OwnersTest, AnAdminGivesAJobAway) {
  ASSERT_TRUE(submit(kRoot, job("a")).ok());
  v1::GiveJobRequest give;
  give.set_name("a");
  give.set_owner("bob");
  v1::GiveJobResponse given;
  EXPECT_EQ(daemon_.ask(kBob, "AccessService", give, &given).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(daemon_.ask(kRoot, "AccessService", give, &given).ok());
  EXPECT_EQ(given.owner(), "bob");
  EXPECT_THAT(jobs(kBob), ElementsAre("a"));
  EXPECT_THAT(jobs(kRoot), ElementsAre());
  EXPECT_TRUE(cancel(kBob, "a").ok());
}

TEST_F(OwnersTest, ASharedJobIsLookedAtAndNotChanged) {
  ASSERT_TRUE(submit(kAlice, job("a")).ok());
  EXPECT_EQ(share(kBob, "jobs/a", "bob").error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(share(kAlice, "jobs/a", "bob").ok());
  EXPECT_THAT(jobs(kBob), ElementsAre("a"));
  v1::Job seen;
  ASSERT_TRUE(get(kBob, "a", &seen).ok());
  EXPECT_EQ(seen.shared_with_size(), 0) << "with whom else it is shared is not told";
  EXPECT_EQ(cancel(kBob, "a").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(get(kAlice, "a", &seen).ok());
  EXPECT_THAT(seen.shared_with(), ElementsAre("bob"));
  ASSERT_TRUE(share(kAlice, "jobs/a", "bob", true).ok());
  EXPECT_EQ(get(kBob, "a").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(share(kAlice, "jobs/a", "").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(OwnersTest, ModelsAreUsedWhereTheyAreShared) {
  v1::CreateModelRequest request;
  request.set_name("m");
  request.set_preset("byte_gpt_1m");
  v1::CreateModelResponse made;
  ASSERT_TRUE(daemon_.ask(kAlice, "ModelService", request, &made).ok());
  v1::SubmitJobRequest with_model = job("b");
  with_model.mutable_spec()->mutable_run()->mutable_model()->set_name("m");
  EXPECT_EQ(submit(kBob, with_model).error_message(), "model \"m\" does not exist");
  ASSERT_TRUE(share(kAlice, "models/m", "").ok());
  EXPECT_TRUE(submit(kBob, with_model).ok());
  const auto remove = [&](const Identity& who) {
    return change<v1::DeleteModelRequest, v1::DeleteModelResponse>(who, "ModelService", "m");
  };
  EXPECT_EQ(remove(kBob).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const grpc::Status used = remove(kAlice);
  EXPECT_EQ(info_of(used).reason(), "MODEL_IN_USE");
  EXPECT_THAT(used.error_message(), Not(HasSubstr("jobs/b"))) << "whose job it is, is not told";
  EXPECT_THAT(remove(kRoot).error_message(), HasSubstr("jobs/b"));
  v1::GetModelRequest get;
  get.set_name("m");
  v1::GetModelResponse seen;
  ASSERT_TRUE(daemon_.ask(kAlice, "ModelService", get, &seen).ok());
  EXPECT_THAT(seen.model().users(), ElementsAre("another's job"));
  ASSERT_TRUE(cancel(kBob, "b").ok());
  EXPECT_TRUE(remove(kAlice).ok());
}

TEST_F(OwnersTest, EqualPlansOfTwoOwnersAreTwo) {
  v1::CreatePlanRequest request;
  request.mutable_model()->set_preset("byte_gpt_1m");
  request.mutable_query()->mutable_mesh()->set_dp(1);
  v1::CreatePlanResponse alices, bobs, again;
  ASSERT_TRUE(daemon_.ask(kAlice, "PlanService", request, &alices).ok());
  ASSERT_TRUE(daemon_.ask(kAlice, "PlanService", request, &again).ok());
  ASSERT_TRUE(daemon_.ask(kBob, "PlanService", request, &bobs).ok());
  EXPECT_EQ(alices.plan().name(), again.plan().name());
  EXPECT_NE(alices.plan().name(), bobs.plan().name());
  EXPECT_EQ(bobs.plan().owner(), "bob");
  EXPECT_EQ((change<v1::DeletePlanRequest, v1::DeletePlanResponse>(kBob, "PlanService",
                                                                   alices.plan().name()))
                .error_code(),
            grpc::StatusCode::NOT_FOUND);
}

/// What is one file on the disk is sent whole by each, and counted for each.
TEST_F(OwnersTest, TheSameBytesOfTwoOwnersAreSentTwice) {
  const std::string bytes = "the same bytes";
  base::Sha256 digest;
  digest.update(std::as_bytes(std::span(bytes)));
  v1::CreateUploadRequest request;
  request.set_file_name("a.bin");
  request.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
  request.set_sha256(digest.hex());
  v1::CreateUploadResponse alices, again, bobs;
  ASSERT_TRUE(daemon_.ask(kAlice, "UploadService", request, &alices).ok());
  {
    const auto writer =
        daemon_.uploads().open_writer("user:alice", alices.upload().name().substr(8));
    writer->append(0, bytes, base::crc32c(std::as_bytes(std::span(bytes))));
    writer->commit();
  }
  ASSERT_TRUE((change<v1::FinishUploadRequest, v1::FinishUploadResponse>(kAlice, "UploadService",
                                                                         alices.upload().name()))
                  .ok());
  ASSERT_TRUE(daemon_.ask(kAlice, "UploadService", request, &again).ok());
  EXPECT_EQ(again.upload().state(), v1::UPLOAD_STATE_COMPLETE);
  ASSERT_TRUE(daemon_.ask(kBob, "UploadService", request, &bobs).ok());
  EXPECT_EQ(bobs.upload().state(), v1::UPLOAD_STATE_RECEIVING) << "nor whether they are there";
  EXPECT_EQ(bobs.upload().owner(), "bob");
  EXPECT_EQ((change<v1::GetUploadRequest, v1::GetUploadResponse>(kBob, "UploadService",
                                                                 alices.upload().name()))
                .error_code(),
            grpc::StatusCode::NOT_FOUND);
  // An admin sees it and ends it.
  v1::ListUploadsRequest list;
  v1::ListUploadsResponse listed;
  ASSERT_TRUE(daemon_.ask(kRoot, "UploadService", list, &listed).ok());
  EXPECT_EQ(listed.uploads_size(), 0);
  list.set_all(true);
  ASSERT_TRUE(daemon_.ask(kRoot, "UploadService", list, &listed).ok());
  EXPECT_EQ(listed.uploads_size(), 3);
  EXPECT_TRUE((change<v1::AbortUploadRequest, v1::AbortUploadResponse>(kRoot, "UploadService",
                                                                       bobs.upload().name()))
                  .ok());
}

TEST_F(OwnersTest, TheQueueNamesNoJobsOfOthers) {
  ASSERT_TRUE(submit(kAlice, job("secret-a")).ok());
  ASSERT_TRUE(submit(kBob, job("b")).ok());
  ASSERT_TRUE(submit(kBob, job("b2")).ok());
  v1::Job seen;
  ASSERT_TRUE(get(kBob, "b2", &seen).ok());
  EXPECT_EQ(seen.wait().reason(), "behind another's job, then jobs/b");
  EXPECT_EQ(seen.wait().ahead_count(), 2);
  EXPECT_THAT(seen.wait().ShortDebugString(), Not(HasSubstr("secret")));
  ASSERT_TRUE(get(kRoot, "b2", &seen).ok());
  EXPECT_EQ(seen.wait().reason(), "behind jobs/secret-a, then jobs/b");
  v1::ListWorkersRequest request;
  v1::ListWorkersResponse workers;
  ASSERT_TRUE(daemon_.ask(kBob, "WorkerService", request, &workers).ok());
  EXPECT_THAT(workers.ShortDebugString(), Not(HasSubstr("secret")));
  EXPECT_TRUE(workers.state_dir().empty());
  ASSERT_TRUE(daemon_.ask(kVera, "WorkerService", request, &workers).ok());
  EXPECT_THAT(workers.queue().reason(), HasSubstr("jobs/secret-a"));
}

TEST_F(OwnersTest, OwnersOrderTheirOwnJobsAndDelayNobodyElses) {
  for (const auto& [who, name] : {std::pair(kAlice, "a1"), std::pair(kBob, "b1"),
                                  std::pair(kAlice, "a2"), std::pair(kBob, "b2")})
    ASSERT_TRUE(submit(who, job(name)).ok());
  v1::MoveJobRequest move;
  move.set_name("b2");
  move.set_first(true);
  v1::MoveJobResponse moved;
  ASSERT_TRUE(daemon_.ask(kBob, "JobService", move, &moved).ok());
  EXPECT_THAT(queue(), ElementsAre("a1", "b2", "a2", "b1"));
  move.set_before("a1");
  EXPECT_EQ(daemon_.ask(kBob, "JobService", move, &moved).error_message(),
            "job \"a1\" does not exist");
  move.set_after("b1");
  ASSERT_TRUE(daemon_.ask(kBob, "JobService", move, &moved).ok());
  EXPECT_THAT(queue(), ElementsAre("a1", "b1", "a2", "b2"));
  ASSERT_TRUE(daemon_
                  .ask(
                      kRoot, "JobService",
                      [] {
                        v1::MoveJobRequest first;
                        first.set_name("b2");
                        first.set_first(true);
                        return first;
                      }(),
                      &moved)
                  .ok());
  EXPECT_THAT(queue(), ElementsAre("b2", "a1", "b1", "a2"));
  // Nor does a pause and a resume bring a job to the head.
  v1::PauseJobResponse paused;
  v1::PauseJobRequest pause;
  pause.set_name("b1");
  ASSERT_TRUE(daemon_.ask(kBob, "JobService", pause, &paused).ok());
  v1::ResumeJobRequest resume;
  resume.set_name("b1");
  v1::ResumeJobResponse resumed;
  ASSERT_TRUE(daemon_.ask(kBob, "JobService", resume, &resumed).ok());
  EXPECT_THAT(queue(), ElementsAre("b2", "a1", "a2", "b1"));
}

TEST_F(OwnersTest, FilesAreWrittenBelowOnesOwnFolder) {
  const std::string name = "checked-path-alone";
  v1::ImportUploadRequest request;
  request.set_validate_only(true);
  const auto import_to = [&](const Identity& who, const std::string& path) {
    request.set_path(path);
    v1::ImportUploadResponse response;
    return daemon_.ask(who, "DataService", request, &response);
  };
  std::filesystem::create_directories(daemon_.data() / "bob");
  EXPECT_TRUE(import_to(kAlice, "alice/a.bin").ok());
  EXPECT_TRUE(import_to(kAlice, "alice/deep/a.bin").ok());
  EXPECT_TRUE(import_to(kRoot, "a.bin").ok());
  for (const char* path : {"a.bin", "bob/a.bin", "alice/../a.bin", "alice/../bob/a.bin"})
    EXPECT_FALSE(import_to(kAlice, path).ok()) << path;
  std::filesystem::create_directory_symlink(daemon_.data() / "bob", daemon_.data() / "alice-link");
  EXPECT_EQ(import_to(kAlice, "alice-link/a.bin").error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(import_to(Identity{"../bob", Role::kSubmitter}, "../bob/a.bin").error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

class OwnersAtLimits : public OwnersTest {
 protected:
  static v1::LimitConfig limits() {
    v1::LimitConfig limits;
    limits.set_owner_jobs(2);
    limits.set_total_jobs(4);
    limits.set_owner_runs(1);
    limits.set_owner_disk_bytes(1000);
    return limits;
  }
  OwnersAtLimits() : OwnersTest(limits()) {}
};

TEST_F(OwnersAtLimits, OneOwnerLeavesRoomForOthers) {
  ASSERT_TRUE(submit(kAlice, job("a1")).ok());
  ASSERT_TRUE(submit(kAlice, job("a2")).ok());
  const grpc::Status third = submit(kAlice, job("a3"));
  EXPECT_EQ(info_of(third).reason(), "QUEUE_FULL");
  EXPECT_THAT(third.error_message(), HasSubstr("limits.owner_jobs: \"alice\" has 2"));
  ASSERT_TRUE(submit(kBob, job("b1")).ok());
  ASSERT_TRUE(submit(kRoot, job("c1")).ok());
  EXPECT_THAT(submit(kRoot, job("c2")).error_message(), HasSubstr("limits.total_jobs"));
  ASSERT_TRUE(cancel(kAlice, "a1").ok());
  EXPECT_TRUE(submit(kAlice, job("a3")).ok());
}

TEST_F(OwnersAtLimits, UsageTellsWhatIsTakenAndByWhom) {
  ASSERT_TRUE(submit(kAlice, job("a1")).ok());
  ASSERT_TRUE(submit(kBob, job("b1")).ok());
  std::filesystem::create_directories(daemon_.state().job("a1"));
  std::ofstream(daemon_.state().job("a1") / "checkpoint") << std::string(900, 'x');
  v1::GetUsageRequest request;
  v1::GetUsageResponse usage;
  ASSERT_TRUE(daemon_.ask(kAlice, "AccessService", request, &usage).ok());
  ASSERT_EQ(usage.owners_size(), 1);
  EXPECT_EQ(usage.total_size(), 0);
  std::map<std::string, v1::LimitUse> uses;
  for (const v1::LimitUse& use : usage.owners(0).uses()) uses[use.limit()] = use;
  EXPECT_EQ(uses["jobs"].used(), 1);
  EXPECT_EQ(uses["jobs"].most(), 2);
  EXPECT_GE(uses["disk_bytes"].used(), 900);
  EXPECT_EQ(uses["disk_bytes"].most(), 1000);
  ASSERT_TRUE(daemon_.ask(kRoot, "AccessService", request, &usage).ok());
  EXPECT_EQ(usage.owners_size(), 3) << "the admins, alice and bob";
  EXPECT_EQ(usage.total_size(), static_cast<int>(kLimitKinds));
  // No more is written for alice, from the next look on; bob writes on.
  std::ofstream(daemon_.state().job("a1") / "checkpoint") << std::string(1001, 'x');
  ASSERT_TRUE(daemon_.ask(kAlice, "AccessService", request, &usage).ok());
  const grpc::Status refused = submit(kAlice, job("a2"));
  EXPECT_EQ(info_of(refused).reason(), "DISK_QUOTA_EXCEEDED");
  EXPECT_THAT(refused.error_message(), HasSubstr("limits.owner_disk_bytes: \"alice\" has 10"));
  EXPECT_TRUE(submit(kBob, job("b2")).ok());
}

}  // namespace
}  // namespace meshloom::control
