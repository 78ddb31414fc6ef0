// SPDX-License-Identifier: Apache-2.0
// Runs with as many saved states as their records can hold, over real gRPC, with fake runs.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/eventually.h"
#include "tests/unit/control/run_client_fixture.h"
#include "tests/unit/control/stores/journal_writer.h"

namespace meshloom::control {
namespace {

const std::string kToken(32, 'a');

class RunStatesTest : public RunServiceTest {
 protected:
  /// As version 3 has it: with all states, the newest of which has the step `count`.
  static v1::JournalRecord run_record(const std::string& id, v1::RunState state, int count,
                                      std::size_t metadata) {
    v1::JournalRecord record;
    record.mutable_run()->set_token_digest(token_digest(kToken));
    v1::Run& run = *record.mutable_run()->mutable_run();
    run.set_name(run_resource(id));
    run.set_state(state);
    run.set_epoch(1);
    run.set_create_time("2026-01-01T00:00:00Z");
    run.mutable_spec()->set_name(id);
    run.mutable_spec()->mutable_config();
    v1::Mesh& mesh = *run.mutable_resolved()->mutable_mesh();
    mesh.set_dp(2);
    mesh.set_fsdp(1);
    mesh.set_cp(1);
    mesh.set_tp(1);
    for (int i = 1; i <= count; ++i) {
      v1::SavedState& saved = *run.add_saved();
      const std::string name = fmt::format("s{:05}", i);
      saved.set_name(state_resource(id, name));
      saved.set_epoch(1);
      saved.set_seq(i);
      saved.set_next_seq(i + 1);
      saved.set_step(i);
      saved.set_create_time("2026-01-01T00:00:00Z");
      saved.set_folder(fmt::format("runs/{}/states/{}.1.{}", id, name, i));
      if (metadata > 0) (*saved.mutable_user_metadata())["of"] = std::string(metadata, 'm');
    }
    return record;
  }
  /// The newest state of the record has files; those of the others would not be looked at.
  void write_newest(const v1::JournalRecord& record) const {
    const v1::SavedState& newest = *record.run().run().saved().rbegin();
    const auto folder = folder_ / "state" / newest.folder();
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "state") << newest.step() << " -3";
  }
  void write_state_dir(const std::vector<v1::JournalRecord>& records) const {
    std::filesystem::create_directories(folder_ / "state");
    write_journal(folder_ / "state/journal", records, 3);
  }
  Client client_of(const std::string& id) {
    Client made = client();
    made.run_.set_name(run_resource(id));
    made.token_ = kToken;
    return made;
  }
  v1::ListStatesResponse list_states(const std::string& id, int* pages) {
    const auto stub = v1::RunService::NewStub(daemon_->channel());
    v1::ListStatesRequest request;
    request.set_run(id);
    request.set_page_size(500);
    v1::ListStatesResponse all;
    do {
      grpc::ClientContext context;
      v1::ListStatesResponse page;
      const grpc::Status status = stub->ListStates(&context, request, &page);
      EXPECT_TRUE(status.ok()) << status.error_message();
      request.set_page_token(page.next_page_token());
      all.MergeFrom(page);
      ++*pages;
    } while (!request.page_token().empty());
    return all;
  }
  grpc::Status delete_state(const std::string& name) {
    v1::DeleteStateRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    context.AddMetadata(kRunTokenKey, kToken);
    v1::DeleteStateResponse response;
    return v1::RunService::NewStub(daemon_->channel())->DeleteState(&context, request, &response);
  }
  static v1::SaveStateRequest save_of(const std::string& name, std::size_t metadata) {
    v1::SaveStateRequest request;
    request.set_name(name);
    (*request.mutable_user_metadata())["of"] = std::string(metadata, 'm');
    return request;
  }
};

TEST_F(RunStatesTest, AStateDirWhoseRunFillsARecordStartsWorksAndStops) {
  v1::JournalRecord record = run_record("big", v1::RUN_STATE_READY, 256, 65'000);
  // Twenty bytes are left: a record with an end time is longer than the journal takes.
  const std::size_t wanted = Journal::kLongestRecord - 20;
  std::string& last =
      (*record.mutable_run()->mutable_run()->mutable_saved(0)->mutable_user_metadata())["of"];
  ASSERT_LT(record.ByteSizeLong(), wanted);
  const std::size_t more = wanted - record.ByteSizeLong();
  last.resize(last.size() + more);
  last.resize(last.size() - (record.ByteSizeLong() - wanted));
  ASSERT_EQ(record.ByteSizeLong(), wanted);
  write_state_dir({record});
  write_newest(record);
  start();
  Client client = client_of("big");
  const v1::Run run = client.wait_for(v1::RUN_STATE_READY);
  EXPECT_EQ(run.epoch(), 2);
  EXPECT_EQ(run.step(), 256);
  EXPECT_EQ(run.saved_count(), 256);
  EXPECT_LT(run.ByteSizeLong(), 2u << 20);
  v1::JobSpec job;
  job.set_name("beside");
  job.mutable_run()->mutable_training()->set_steps(1);
  daemon_->store().submit(job, job.run(), {});
  EXPECT_TRUE(daemon_->store().ledger().troubles().empty());
  const grpc::Status refused = client.save_state(257, save_of("more", 10'000), 2);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(info_of(refused).reason(), "STATES_FULL");
  EXPECT_EQ(info_of(refused).metadata().at("limit"), "16777216");
  EXPECT_GT(std::stoll(info_of(refused).metadata().at("bytes")), 16'777'216);
  EXPECT_TRUE(delete_state("runs/big/states/s00002").ok());
  EXPECT_TRUE(client.save_state(258, save_of("more", 1000), 2).ok());
  EXPECT_EQ(client.wait(client.name_of(258, 2)).state(), v1::OPERATION_STATE_SUCCEEDED);
  daemon_.reset();  // saves what it has
  for (const v1::JournalRecord& one : read_journal(folder_ / "state/journal"))
    EXPECT_LT(one.ByteSizeLong(), Journal::kLongestRecord / 2);
  start();
  const v1::Run again = client_of("big").wait_for(v1::RUN_STATE_READY);
  EXPECT_EQ(again.saved_count(), 257);
  EXPECT_EQ(again.saved().rbegin()->name(), "runs/big/states/stop-256");
  Client closing = client_of("big");
  EXPECT_TRUE(closing.close().ok());
  EXPECT_EQ(closing.wait_for(v1::RUN_STATE_CLOSED).state(), v1::RUN_STATE_CLOSED);
  EXPECT_TRUE(daemon_->store().ledger().troubles().empty());
  EXPECT_EQ(daemon_->wait_for("beside", v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RunStatesTest, AnswersFitWhatClientsTakeByThemselves) {
  std::vector<v1::JournalRecord> records;
  for (const char* id : {"a", "b", "c"})
    records.push_back(run_record(id, v1::RUN_STATE_CLOSED, 90, 65'000));
  write_state_dir(records);
  start();
  v1::ListRunsResponse runs;
  grpc::ClientContext context;
  const grpc::Status listed =
      v1::RunService::NewStub(daemon_->channel())->ListRuns(&context, {}, &runs);
  ASSERT_TRUE(listed.ok()) << listed.error_message();
  ASSERT_EQ(runs.runs_size(), 3);
  for (const v1::Run& run : runs.runs()) {
    EXPECT_EQ(run.saved_count(), 90);
    EXPECT_TRUE(run.saved().rbegin()->user_metadata().empty());
  }
  const v1::Run run = client_of("b").get();
  EXPECT_EQ(run.saved_count(), 90);
  ASSERT_EQ(run.saved_size(), 90) << "the older ones without user_metadata";
  EXPECT_EQ(run.saved(89).user_metadata().at("of").size(), 65'000u);
  EXPECT_TRUE(run.saved(0).user_metadata().empty());
  int pages = 0;
  const v1::ListStatesResponse states = list_states("runs/b", &pages);
  EXPECT_GE(pages, 3);
  ASSERT_EQ(states.states_size(), 90);
  for (int i = 0; i < 90; ++i) {
    EXPECT_EQ(states.states(i).name(), fmt::format("runs/b/states/s{:05}", i + 1));
    EXPECT_EQ(states.states(i).user_metadata().at("of").size(), 65'000u);
  }
}

TEST_F(RunStatesTest, ARunMayHaveTenThousandStates) {
  const v1::JournalRecord record = run_record("many", v1::RUN_STATE_READY, 10'000, 0);
  write_state_dir({record});
  write_newest(record);
  start();
  Client client = client_of("many");
  EXPECT_EQ(client.wait_for(v1::RUN_STATE_READY).saved_count(), 10'000);
  EXPECT_LT(client.get().ByteSizeLong(), 2u << 20);
  const std::uintmax_t before = std::filesystem::file_size(folder_ / "state/journal");
  ASSERT_TRUE(client.save_state(10'001, save_of("one-more", 10), 2).ok());
  EXPECT_EQ(client.wait(client.name_of(10'001, 2)).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_LT(std::filesystem::file_size(folder_ / "state/journal") - before, 1000u);
  EXPECT_TRUE(delete_state("runs/many/states/s00001").ok());
  int pages = 0;
  const v1::ListStatesResponse states = list_states("many", &pages);
  ASSERT_EQ(states.states_size(), 10'000);
  EXPECT_EQ(pages, 20);
  EXPECT_EQ(states.states(0).name(), "runs/many/states/s00002");
  EXPECT_EQ(states.states(9'999).name(), "runs/many/states/one-more");
  EXPECT_TRUE(client.get().saved(0).user_metadata().empty());
  EXPECT_EQ(info_of(delete_state("runs/many/states/s00001")).reason(), "STATE_NOT_FOUND");
}

TEST_F(RunStatesTest, ASpecThatIsTooLargeIsRefused) {
  start();
  Client client = this->client();
  v1::RunSpec spec;
  spec.mutable_config()->mutable_model()->set_preset(std::string(300 << 10, 'p'));
  const grpc::Status refused = client.create(spec);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(info_of(refused).metadata().at("field"), "spec.config");
}

TEST_F(RunStatesTest, ARunOfBeforeThatLimitIsToldWithoutItsConfig) {
  v1::JournalRecord record = run_record("old", v1::RUN_STATE_CLOSED, 1, 0);
  v1::Run& run = *record.mutable_run()->mutable_run();
  for (v1::RunConfig* config : {run.mutable_spec()->mutable_config(), run.mutable_resolved()})
    config->mutable_model()->set_preset(std::string(4'000'000, 'p'));
  write_state_dir({record});
  start();
  const v1::Run told = client_of("old").get();
  EXPECT_EQ(told.saved_count(), 1);
  EXPECT_FALSE(told.has_resolved());
  EXPECT_NE(told.notes(0).find("8000"), std::string::npos) << told.notes(0);
  EXPECT_EQ(client_of("old").state(), v1::RUN_STATE_CLOSED) << "it is in the list, too";
}

}  // namespace
}  // namespace meshloom::control
