// SPDX-License-Identifier: Apache-2.0
// What clients and strangers may send, leave, hold and ask for again and again beside a job that
// trains: each is bounded, others are served meanwhile, and the job keeps its losses. These are
// quick forms of tests/faults/floods.sh.
#include <fmt/format.h>

#include <fstream>
#include <future>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"
#include "tests/e2e/storms.h"
#include "tests/support/raw_http2.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/plan_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

using Runs = RunClient::Runs;

v1::RunSpec waiting_run(const std::string& name) {
  v1::RunSpec spec;
  spec.set_name(name);
  spec.mutable_config()->mutable_model()->set_preset("byte_gpt_tiny");
  spec.mutable_config()->mutable_training()->set_seq_len(16);
  return spec;
}

class FloodsBesideE2e : public DaemonTest {
 protected:
  // --- Of runs that have ended before the job begins.
  /// Returns the name of an operation whose result has 41 MiB and was read by nobody.
  std::string leave_large_result() const {
    std::ofstream(data_ / "large.json") << R"({"model_type": "gpt2", "n_layer": 1, "n_head": 6,
      "n_embd": 384, "n_positions": 64, "vocab_size": 27000})";
    RunClient run(address_);
    v1::RunSpec spec = waiting_run("large");
    spec.mutable_config()->mutable_model()->set_config("large.json");
    spec.mutable_config()->mutable_model()->clear_preset();
    EXPECT_TRUE(run.create(spec));
    v1::GetParametersRequest embedding;
    embedding.add_names("transformer.wte.weight");
    const Outcome values = run.run(&Runs::GetParameters, embedding);
    EXPECT_TRUE(values.ok()) << values.message;
    EXPECT_TRUE(run.close().ok());
    return values.operation.name();
  }
  /// A run of as many states as do not fit an answer together with their metadata.
  void leave_states() const {
    RunClient run(address_);
    EXPECT_TRUE(run.create(waiting_run("many")));
    v1::SaveStateRequest save;
    (*save.mutable_user_metadata())["of"] = std::string(65'000, 'm');
    for (int i = 0; i < kStates; ++i) {
      save.set_name(fmt::format("s{}", i));
      const Outcome saved = run.run(&Runs::SaveState, save);
      EXPECT_TRUE(saved.ok()) << saved.message;
    }
    EXPECT_TRUE(run.close().ok());
  }

  // --- Beside the job.
  void list_states() const;
  void hold_result(const std::string& operation) const;
  void flood_with_verbs() const;
  void look_as_a_stranger() const;
  void hold_all_runs() const;
  void storm() const;
  void send_raw_http2() const;
  void send_as_strangers() const;

  std::int64_t resident_mib() const { return status_number(pids_.at(0), "VmRSS") / 1024; }
  std::unique_ptr<Runs> runs() const {
    return v1::RunService::NewStub(
        grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }
  void expect_served() const {
    const auto status = client({"status", "--wait", "20"});
    EXPECT_EQ(status.exit_code, 0) << status.output;
  }

  static constexpr int kStates = 70;
};

/// By clients that take 4 MiB, as they do by themselves.
void FloodsBesideE2e::list_states() const {
  const auto stub = runs();
  {
    grpc::ClientContext context;
    v1::ListRunsResponse all;
    const grpc::Status listed = stub->ListRuns(&context, {}, &all);
    EXPECT_TRUE(listed.ok()) << listed.error_message();
  }
  RunClient looking(address_);
  looking.name = "runs/many";
  EXPECT_EQ(looking.get().saved_count(), kStates);
  v1::ListStatesRequest request;
  request.set_run("runs/many");
  int states = 0, pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListStatesResponse page;
    const grpc::Status listed = stub->ListStates(&context, request, &page);
    ASSERT_TRUE(listed.ok()) << listed.error_message();
    states += page.states_size();
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(states, kStates);
  EXPECT_GE(pages, 3) << "2 MiB each";
}

/// Readers that take nothing share one copy.
void FloodsBesideE2e::hold_result(const std::string& operation) const {
  const std::int64_t before = resident_mib();
  v1::ReadResultRequest request;
  request.set_name(operation);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ReadResultResponse>>> readers;
  std::vector<std::unique_ptr<v1::OperationService::Stub>> stubs;
  for (int i = 0; i < 48; ++i) {
    if (i % 10 == 0) stubs.push_back(v1::OperationService::NewStub(own_channel(address_)));
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stubs.back()->ReadResult(contexts.back().get(), request));
  }
  std::int64_t most = before;
  eventually(4s, [&] {
    most = std::max(most, resident_mib());
    return false;
  });
  EXPECT_LE(most, before + 200) << "MiB of 48 readers of 41 MiB";
  v1::ReadResultResponse piece;
  EXPECT_TRUE(readers.front()->Read(&piece));
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) {
    while (reader->Read(&piece)) continue;
    reader->Finish();
  }
}

/// Forwards to a run that waits: those that find no room keep no memory, and all of it goes back
/// with the run.
void FloodsBesideE2e::flood_with_verbs() const {
  const std::int64_t before = resident_mib();
  RunClient client(address_);
  ASSERT_TRUE(client.submit(waiting_run("flooded")).ok());
  client.waits = false;
  v1::LossBatch batch;
  batch.set_loss("cross_entropy");
  while (batch.data_size() < 60'000) *batch.add_data() = next_token_datum({1, 2, 3});
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    const Outcome outcome = client.forward(batch);
    refused += outcome.ok() ? 0 : 1;
    if (!outcome.ok()) {
      EXPECT_EQ(outcome.reason, "VERBS_FULL") << outcome.message;
    }
  }
  EXPECT_GE(refused, 20) << "of " << batch.ByteSizeLong() << " bytes on the wire each";
  const std::int64_t full = resident_mib() - before;
  EXPECT_LT(full, 450) << "MiB, where 256 may wait";
  EXPECT_TRUE(client.close().ok());
  EXPECT_TRUE(eventually(12s, [&] { return resident_mib() - before < 100; }))
      << resident_mib() - before << " MiB of " << full << " stay";
}

/// Who looks at a run without its token holds nothing and tells nothing, and who repeats the
/// request of its creation gets a run of its own.
void FloodsBesideE2e::look_as_a_stranger() const {
  RunClient owner(address_), stranger(address_);
  v1::CreateRunRequest creation;
  creation.set_request_id("0b3c");
  *creation.mutable_spec() = waiting_run("");
  creation.mutable_spec()->set_lease_seconds(2);
  const auto stub = runs();
  std::string names[2];
  for (const bool of_stranger : {false, true}) {
    grpc::ClientContext context;
    context.AddMetadata("meshloom-client", of_stranger ? "stranger" : "e2e");
    v1::CreateRunResponse made;
    ASSERT_TRUE(stub->CreateRun(&context, creation, &made).ok());
    RunClient& client = of_stranger ? stranger : owner;
    client.name = names[of_stranger] = made.run().name();
    client.token = made.token();
  }
  EXPECT_NE(names[0], names[1]);
  EXPECT_TRUE(owner.heartbeat().ok()) << "the other one's creation has ended its token";
  EXPECT_TRUE(stranger.close().ok());
  stranger.name = owner.name;
  stranger.token.clear();
  EXPECT_TRUE(eventually(10s, [&] { return stranger.get().state() == v1::RUN_STATE_CLOSED; }))
      << "a stranger keeps it alive";
  EXPECT_EQ(owner.heartbeat().reason, "LEASE_ENDED");
  v1::DeleteRunRequest request;
  request.set_name(owner.name);
  grpc::ClientContext context;
  context.AddMetadata("meshloom-client", "stranger");
  v1::DeleteRunResponse response;
  EXPECT_EQ(RunClient::outcome_of(stub->DeleteRun(&context, request, &response)).reason,
            "RUN_OF_ANOTHER");
  owner.token.clear();
  EXPECT_TRUE(owner.call(&Runs::DeleteRun, request).ok());
}

/// One client leaves room for the runs of others.
void FloodsBesideE2e::hold_all_runs() const {
  std::vector<std::unique_ptr<RunClient>> held;
  Outcome outcome;
  while (held.size() < 100) {
    auto next = std::make_unique<RunClient>(address_);
    outcome = next->submit(waiting_run(""));
    if (!outcome.ok()) break;
    held.push_back(std::move(next));
  }
  EXPECT_EQ(held.size(), 75u);
  EXPECT_EQ(outcome.reason, "TOO_MANY_RUNS") << outcome.message;
  v1::CreateRunRequest request;
  *request.mutable_spec() = waiting_run("of-another");
  grpc::ClientContext context;
  context.AddMetadata("meshloom-client", "another");
  v1::CreateRunResponse made;
  EXPECT_TRUE(runs()->CreateRun(&context, request, &made).ok());
  RunClient other(address_);
  other.name = made.run().name();
  other.token = made.token();
  EXPECT_TRUE(other.close().ok());
  for (const auto& run : held) EXPECT_TRUE(run->close().ok());
}

/// Calls that read files and compute, beside which a job and a run answer at once.
void FloodsBesideE2e::storm() const {
  RunClient run(address_);
  ASSERT_TRUE(run.submit(waiting_run("answering")).ok());
  v1::ListCheckpointsRequest list;
  list.set_verify(true);
  v1::EstimatePlanRequest estimate;
  estimate.mutable_model()->set_preset("byte_gpt_tiny");
  estimate.mutable_query()->mutable_mesh()->set_tp(1 << 14);
  {
    const Storm<v1::CheckpointService, v1::ListCheckpointsRequest, v1::ListCheckpointsResponse>
        lists(address_, 200, list,
              [](auto& stub, auto... call) { stub.async()->ListCheckpoints(call...); });
    const Storm<v1::PlanService, v1::EstimatePlanRequest, v1::EstimatePlanResponse> estimates(
        address_, 100, estimate,
        [](auto& stub, auto... call) { stub.async()->EstimatePlan(call...); });
    const auto jobs = v1::JobService::NewStub(own_channel(address_));
    const auto answer =
        longest_answer(25, [&] { return is_answered(*jobs, "beside") && run.heartbeat().ok(); });
    // 100 ms on a host that is not busy with tests.
    EXPECT_LT(answer, 1s);
    EXPECT_EQ(client({"status"}).exit_code, 0);
    EXPECT_GT(lists.refused() + estimates.refused(), 0) << "one client has its share of places";
  }
  EXPECT_TRUE(run.close().ok());
}

/// What no client library sends, over connections that are shut down for it; other clients are
/// served all the time.
void FloodsBesideE2e::send_raw_http2() const {
  const std::string method = "/meshloom.v1.JobService/ListJobs";
  const auto stub = v1::JobService::NewStub(channel_from("127.0.0.2", port()));
  const auto beside = [&](const auto& send) {
    std::int64_t sent = 0;
    auto hostile = std::async(std::launch::async, [&] {
      test::RawHttp2 connection(port());
      return send(connection, method, 20s, &sent);
    });
    do EXPECT_TRUE(is_answered(*stub, "beside"));
    while (hostile.wait_for(5ms) != std::future_status::ready);
    EXPECT_TRUE(hostile.get()) << sent << " were sent and it goes on";
    expect_served();
  };
  beside(test::reset_rapidly);
  sleep_ms(2000);  // for so long no connection is taken from here
  beside(test::continue_headers);
}

/// At the ports for the other ranks and for their heartbeats.
void FloodsBesideE2e::send_as_strangers() const {
  const std::vector<int> ports = ports_for_ranks();
  ASSERT_EQ(ports.size(), 2u);
  const Strangers strangers(ports, 4);
  sleep_ms(3000);
  EXPECT_GT(strangers.bytes(), 1 << 16);
}

TEST_F(FloodsBesideE2e, StrangersAtTheRanksPortsDoNotDisturbThem) {
  give_each_rank_a_host();
  start(2, {"--mpi-interface", "lo"});
  submit_endless("dp2", "beside", 3);
  send_as_strangers();
  EXPECT_EQ(daemon_log().find("nothing was heard"), std::string::npos) << daemon_log();
  EXPECT_EQ(job("beside")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("beside"));
  shut_down();
}

TEST_F(FloodsBesideE2e, AJobThatTrainsKeepsItsLosses) {
  start();
  submit_endless("dp2", "undisturbed", 2000);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));
  const std::string result = leave_large_result();
  leave_states();

  submit_endless("dp2", "beside", 3);
  list_states();
  hold_result(result);
  flood_with_verbs();
  look_as_a_stranger();
  hold_all_runs();
  storm();
  send_raw_http2();
  EXPECT_EQ(daemon_log().find("nothing was heard"), std::string::npos) << daemon_log();
  EXPECT_EQ(job("beside")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("beside"));
  expect_same_losses("beside", "undisturbed");
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
