// SPDX-License-Identifier: Apache-2.0
// Malformed configs and requests: each has its clear error, and the daemon serves on.
#include <fmt/format.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"
#include "tests/e2e/wrong_requests.h"
#include "tests/support/source_folder.h"
#include "v1/rank_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

/// A model that no host of these tests holds: 8 billion parameters on each of two ranks.
std::string too_large() {
  return config("{steps: 2, seq_len: 4096, micro_batch_size: 1, global_batch_size: 4}",
                "{preset: llama3_8b}", "{path: text.txt, tokenizer: bytes}");
}

class RequestsE2e : public DaemonTest {
 protected:
  void send_wrong_configs() {
    for (const auto& [yaml, expected] : wrong_configs()) {
      const auto result = client({"job", "submit", write_text("bad.yaml", yaml)});
      EXPECT_EQ(result.exit_code, 2) << yaml << result.output << result.errors;
      EXPECT_NE(result.errors.find(expected), std::string::npos)
          << yaml << "got: " << result.errors;
    }
  }
  /// What is refused for what the daemon or the job is at this moment.
  void send_refused_commands(const std::string& running) {
    const auto refused = [&](const Arguments& command, const std::string& expected) {
      const auto result = client(command);
      EXPECT_NE(result.exit_code, 0) << expected << result.output;
      EXPECT_NE(result.errors.find(expected), std::string::npos)
          << expected << "\ngot: " << result.errors;
    };
    refused({"job", "submit", write_text("large.yaml", too_large())}, "the job needs about");
    refused({"job", "delete", running}, running);
    refused({"job", "release", running}, running);
    refused({"job", "resume", running}, running);
    refused({"job", "resume", "ended", "--steps", "20"}, "the data are not those of");
    refused({"job", "submit", write_job({}), "--name", running}, running);
  }
  /// As a stranger on this host may: without the launch's secret.
  void send_noise_to_the_ranks_ports() {
    for (const std::string& listener : tcp_listeners(pids_[0])) {
      const auto channel = grpc::CreateChannel(fmt::format("127.0.0.1:{}", port_of(listener)),
                                               grpc::InsecureChannelCredentials());
      const auto ranks = v1::RankService::NewStub(channel);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + 2s);
      context.AddMetadata("meshloom-launch-secret", "0123456789abcdef0123456789abcdef");
      const auto stream = ranks->Follow(&context);
      v1::RankMessage hello;
      hello.mutable_hello()->set_rank(1);
      stream->Write(hello);
      EXPECT_FALSE(stream->Finish().ok());
    }
  }
  /// Losses of a job that was cancelled after `steps` steps or more.
  std::map<int, double> losses_of_first(const std::string& name, std::size_t steps) {
    EXPECT_TRUE(reaches_step(name, static_cast<int>(steps), 120s)) << job(name).dump(2);
    EXPECT_EQ(client({"job", "cancel", name}).exit_code, 0);
    EXPECT_TRUE(reaches(name, "cancelled")) << job(name).dump(2);
    return step_losses(name);
  }
};

TEST_F(RequestsE2e, MalformedConfigsAreRefusedWithPlaceAndReason) {
  start();
  send_wrong_configs();
  EXPECT_TRUE(client_json({"job", "list"})["jobs"].empty());
  submit({}, "good");
  EXPECT_TRUE(reaches("good", "succeeded"));
}

/// Bytes that the processes have used at most.
std::int64_t peak_memory(const std::vector<pid_t>& pids) {
  std::int64_t sum = 0;
  for (const pid_t pid : pids) sum += status_number(pid, "VmHWM") * 1024;
  EXPECT_GT(sum, 0);
  return sum;
}

TEST_F(RequestsE2e, WhatAConfigAsksForIsCheckedBeforeItCostsAnything) {
  start();
  const std::string training = "{steps: 2, seq_len: 16, global_batch_size: 4}";
  std::ofstream(data_ / "deep.json") << R"({"model_type": "gpt2", "vocab_size": 256,
    "n_positions": 16, "n_embd": 16, "n_layer": 1000000, "n_head": 2})";
  const auto check = [&](const std::string& yaml) {
    return client({"job", "submit", write_text("large.yaml", yaml), "--validate-only"});
  };
  ASSERT_EQ(check(config(training)).exit_code, 0);
  const std::int64_t before = peak_memory(pids_);
  const auto begin = std::chrono::steady_clock::now();
  const auto deep = check(config(training, "{config: deep.json}"));
  EXPECT_EQ(deep.exit_code, 2);
  EXPECT_NE(deep.errors.find("n_layer is 1000000, but an integer from 1 to 1024"),
            std::string::npos)
      << deep.errors;

  const std::string large = too_large();
  const auto refused = check(large);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("run.mesh.fsdp: the job needs about "), std::string::npos)
      << refused.errors;
  EXPECT_NE(refused.errors.find("2 ranks of "), std::string::npos);
  const auto taken = check("overcommit: true\n" + large);
  EXPECT_EQ(taken.exit_code, 0) << taken.errors;
  EXPECT_NE(taken.errors.find("warning: overcommit: the job needs about "), std::string::npos)
      << taken.errors;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_LT(peak_memory(pids_) - before, 64 << 20);
  const auto details = Json::parse(
      client({"--json", "job", "submit", write_text("large.yaml", large)}).output)["error"];
  EXPECT_EQ(details["info"]["reason"], "MEMORY_ESTIMATE");
  EXPECT_GT(std::stoll(details["info"]["metadata"]["needed_bytes"].get<std::string>()),
            2 * 16 * std::int64_t{8'000'000'000});
}

TEST_F(RequestsE2e, MalformedRequestsEndWithTheirCode) {
  start();
  submit({}, "good");
  ASSERT_TRUE(reaches("good", "succeeded"));
  send_wrong_requests(address_, "good");
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  v1::CancelJobResponse response;
  cancel.set_name("good");
  EXPECT_EQ(jobs()->CancelJob(&context, cancel, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  submit({}, "after");
  EXPECT_TRUE(reaches("after", "succeeded"));
}

TEST_F(RequestsE2e, NothingThatIsWrongChangesAJobThatTrains) {
  start();
  TinyJob ended;
  ended.data = "changing.txt";
  std::filesystem::copy(data_ / "text.txt", data_ / "changing.txt");
  submit(ended, "ended");
  ASSERT_TRUE(reaches("ended", "succeeded"));
  std::ofstream(data_ / "changing.txt", std::ios::app) << "more";
  for (const std::string plan : {"dp2", "fsdp2", "tp2"}) {
    SCOPED_TRACE(plan);
    submit_endless(plan, "stormy-" + plan, 1);
    send_wrong_configs();
    send_wrong_requests(address_, "stormy-" + plan);
    send_refused_commands("stormy-" + plan);
    send_noise_to_the_ranks_ports();
    EXPECT_EQ(job("stormy-" + plan)["state"], "running");
    const auto stormy = losses_of_first("stormy-" + plan, 1);
    submit_endless(plan, "calm-" + plan, 1);
    const auto calm = losses_of_first("calm-" + plan, stormy.size());
    for (const auto& [step, loss] : stormy) ASSERT_EQ(loss, calm.at(step)) << "step " << step;
  }
}

TEST_F(RequestsE2e, CallsThatAreGivenUpDoNoHarm) {
  start();
  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "endless");
  const auto stub = jobs();
  for (int i = 0; i < 300; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1 + i % 20));
    v1::WatchJobRequest watch;
    watch.set_name("endless");
    const auto stream = stub->WatchJob(&context, watch);
    v1::WatchJobResponse message;
    while (stream->Read(&message)) {
    }
    stream->Finish();
  }
  EXPECT_EQ(job("endless")["state"], "running");
  EXPECT_EQ(client({"job", "cancel", "endless"}).exit_code, 0);
  EXPECT_TRUE(reaches("endless", "cancelled"));
}

TEST_F(RequestsE2e, AWaitForAnOperationEndsInItsTimeWhereTheClockIsSetBack) {
  const std::filesystem::path moved = folder_ / "moved";
  ::setenv("LD_PRELOAD", test::program("libmoved_clock.so").c_str(), 1);
  ::setenv("MOVED_CLOCK", moved.c_str(), 1);
  start(1);
  for (const char* name : {"LD_PRELOAD", "MOVED_CLOCK"}) ::unsetenv(name);
  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "holding");
  ASSERT_TRUE(reaches("holding", "running"));
  RunClient waiting(address_);
  v1::RunSpec spec;
  spec.mutable_config()->mutable_model()->set_preset("byte_gpt_tiny");
  ASSERT_TRUE(waiting.submit(spec).ok());
  waiting.waits = false;
  const Outcome begun = waiting.save_state("s");
  ASSERT_TRUE(begun.ok()) << begun.message;
  const auto operations = v1::OperationService::NewStub(
      grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  v1::WaitOperationRequest wait;
  wait.set_name(begun.operation.name());
  wait.set_timeout_ms(1000);
  for (const bool is_moved : {false, true}) {
    if (is_moved) std::ofstream(moved) << "by an hour";
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 15s);
    v1::WaitOperationResponse response;
    const auto begin = std::chrono::steady_clock::now();
    const grpc::Status status = operations->WaitOperation(&context, wait, &response);
    const auto time = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(status.ok()) << status.error_message() << (is_moved ? " of a moved clock" : "");
    EXPECT_EQ(response.operation().state(), v1::OPERATION_STATE_WAITING);
    EXPECT_GE(time, 900ms);
    EXPECT_LT(time, 6s);
  }
}

TEST_F(RequestsE2e, ARepeatedRequestIdGivesTheSameJobAlsoAfterARestart) {
  start(1);
  const auto file = write_job({});
  const Arguments submit_it{"job", "submit", file, "--request-id",
                            "11111111-2222-4333-8444-555555555555"};
  const Json first = client_json(submit_it);
  EXPECT_EQ(client_json(submit_it)["name"], first["name"]);
  ASSERT_TRUE(reaches(first["name"], "succeeded"));
  kill_everything();
  start(1);
  EXPECT_EQ(client_json(submit_it)["name"], first["name"]);
  EXPECT_EQ(client_json({"job", "list"})["jobs"].size(), 1u);
  TinyJob other;
  other.steps = 21;
  write_job(other);
  const auto reused =
      client({"job", "submit", file, "--request-id", "11111111-2222-4333-8444-555555555555"});
  EXPECT_EQ(reused.exit_code, 2);
  EXPECT_NE(reused.errors.find("was used before for another request"), std::string::npos);
}

TEST_F(RequestsE2e, TheClientTellsHowItEnded) {
  address_ = "127.0.0.1:9";  // nobody listens there
  const auto dead = client({"status"}, 20s);
  EXPECT_EQ(dead.exit_code, 3);
  EXPECT_NE(dead.errors.find("no meshloomd answers at 127.0.0.1:9"), std::string::npos);
  EXPECT_EQ(client({"job", "submit", write_job({}), "--follow"}, 20s).exit_code, 3);
  EXPECT_EQ(client({"job"}).exit_code, 2);
  EXPECT_EQ(client({"job", "submit", "/no/such.yaml"}).exit_code, 2);
  EXPECT_EQ(client({"frobnicate"}).exit_code, 2);
  EXPECT_EQ(client({"generate", "--job", "a", "--prompt", "x", "--tokens", "1"}).exit_code, 2);
  EXPECT_EQ(client({"generate", "--job", "a", "--prompt", "x", "--samples", "0"}).exit_code, 2);
  const auto no_id = client({"generate", "--job", "a", "--tokens", "1,x"});
  EXPECT_EQ(no_id.exit_code, 2);
  EXPECT_NE(no_id.errors.find("--tokens 1,x: \"x\" is no token id"), std::string::npos)
      << no_id.errors;
  EXPECT_EQ(client({"generate", "--job", "a", "--prompts-file", "/nowhere"}).exit_code, 2);
  const auto error = client({"--json", "status"}, 20s);
  EXPECT_EQ(Json::parse(error.output)["error"]["exit_code"], 3);

  start(1);
  EXPECT_EQ(client({"job", "show", "nobody"}).exit_code, 1);
  const auto valid = client({"job", "submit", write_job({}), "--validate-only"});
  EXPECT_EQ(valid.exit_code, 0) << valid.errors;
  EXPECT_NE(valid.output.find("weight_decay: 0.1"), std::string::npos) << "every default is shown";
  TinyJob bad;
  bad.extra = "  lr_scheduler: {warmup_steps: 1000}\n";
  EXPECT_EQ(client({"job", "submit", write_job(bad), "--validate-only"}).exit_code, 2);
  EXPECT_TRUE(client_json({"job", "list"})["jobs"].empty());
}

}  // namespace
}  // namespace meshloom::e2e
