// SPDX-License-Identifier: Apache-2.0
// Malformed configs and requests: each has its clear error, and the daemon serves on.
#include <fmt/format.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

using RequestsE2e = DaemonTest;

/// A job file with one wrong thing: `key: value` lines below run replace or add to a right one.
std::string config(const std::string& training = "{steps: 2, seq_len: 32, global_batch_size: 4}",
                   const std::string& model = "{preset: byte_gpt_tiny}",
                   const std::string& data = "{path: text.txt}", const std::string& extra = "") {
  return fmt::format("run:\n  model: {}\n  training: {}\n  data: {}\n{}", model, training, data,
                     extra);
}

TEST_F(RequestsE2e, MalformedConfigsAreRefusedWithPlaceAndReason) {
  start();
  const std::string good = "{steps: 2, seq_len: 32, global_batch_size: 4}";
  const std::string tiny = "{preset: byte_gpt_tiny}";
  const std::string text = "{path: text.txt}";
  const std::pair<std::string, std::string> cases[] = {
      // Seen by the client.
      {"run:\n  trainin: {steps: 2}\n",
       "bad.yaml:2: run: unknown key \"trainin\"; did you mean \"training\"?"},
      {config("{steps: two}"), "bad.yaml:3: run.training.steps: two, expected a whole number"},
      {config("{steps: 2, steps: 3}"), "given twice"},
      {config(good, tiny, "{path: text.txt, pack_documents: yes}"), "yes, expected true or false"},
      {config(good, tiny, text, "  optimizer: {type: adamax}\n"),
       "expected one of adamw, adam, sgd"},
      {config(good, tiny, text, "  mesh: {dp: [2]}\n"), "a list, expected a whole number"},
      {"run: [", "not YAML"},
      {"name: x\n", "has no \"run\""},
      // Seen by the daemon, shown with the file's line.
      {config("{steps: 0, seq_len: 32, global_batch_size: 4}"), "bad.yaml:3: run.training.steps"},
      {config("{steps: 2, seq_len: 32}"), "run.training.global_batch_size"},
      {config("{steps: 2, seq_len: 4096, global_batch_size: 4}"),
       "longer than the model's context"},
      {config("{steps: 2, seq_len: 32, global_batch_size: 4, micro_batch_size: 9}"),
       "run.training.micro_batch_size"},
      {config(good, "{preset: gpt5}"), "bad.yaml:2: run.model.preset"},
      {config(good, "{preset: byte_gpt_tiny, hf_folder: x}"), "run.model"},
      {config(good, "{hf_folder: ../../etc}"), "run.model.hf_folder"},
      {config(good, tiny, "{path: nothing.txt}"), "bad.yaml:4: run.data.path"},
      {config(good, tiny, "{path: /etc/passwd}"), "run.data.path"},
      {config(good, tiny, "{path: ../data/text.txt}"), "run.data.path"},
      {config(good, tiny, "{path: text.txt, tokenizer: gpt2}"), "run.data.tokenizer"},
      {config(good, tiny, text, "  mesh: {dp: 3}\n"),
       "the mesh dp=3,fsdp=1,tp=1 has 3 ranks, the daemon 2"},
      {config(good, tiny, text, "  mesh: {cp: 2}\n"), "bad.yaml:5: run.mesh.cp"},
      {config(good, tiny, text, "  plan: {dtype: float16}\n"),
       "float16 is not offered for training"},
      {config(good, tiny, text, "  plan: {dtype: float8}\n"), "run.plan.dtype"},
      {config(good, tiny, text, "  optimizer: {lr: -1}\n"), "run.optimizer.lr"},
      {config(good, tiny, text, "  optimizer: {momentum: 0.9}\n"), "run.optimizer.momentum"},
      {config(good, tiny, text, "  lr_scheduler: {warmup_steps: 5}\n"),
       "run.lr_scheduler.warmup_steps"},
      {config(good, tiny, text, "  export: {hf_folder: ../out}\n"), "run.export.hf_folder"},
      {config(good, tiny, text, "  sample: {prompt: a, token_ids: [1]}\n"), "run.sample"},
      {"name: Not_A_Name\n" + config(), "bad.yaml:1: name"},
  };
  for (const auto& [yaml, expected] : cases) {
    const auto result = client({"job", "submit", write_text("bad.yaml", yaml)});
    EXPECT_EQ(result.exit_code, 2) << yaml << result.output << result.errors;
    EXPECT_NE(result.errors.find(expected), std::string::npos) << yaml << "got: " << result.errors;
  }
  EXPECT_TRUE(client_json({"job", "list"})["jobs"].empty());
  submit({}, "good");
  EXPECT_TRUE(reaches("good", "succeeded"));
}

/// Bytes that the processes have used at most.
std::int64_t peak_memory(const std::vector<pid_t>& pids) {
  std::int64_t sum = 0;
  for (const pid_t pid : pids) {
    std::ifstream file(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(file, line);)
      if (line.rfind("VmHWM:", 0) == 0) sum += std::stoll(line.substr(6)) * 1024;
  }
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

  // A model that no host of these tests holds: 8 billion parameters on each of two ranks.
  const std::string large = config(
      "{steps: 2, seq_len: 4096, micro_batch_size: 1, "
      "global_batch_size: 4}",
      "{preset: llama3_8b}");
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

/// Calls a method with a deadline; the status it ends with.
template <typename Stub, typename Request, typename Response>
grpc::StatusCode call(Stub& stub,
                      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                      const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 10s);
  Response response;
  return (stub.*method)(&context, request, &response).error_code();
}

template <typename Reader>
grpc::StatusCode end_of(Reader reader) {
  typename std::remove_reference_t<decltype(*reader)>* stream = reader.get();
  while (true) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(*stream)>,
                                 grpc::ClientReader<v1::WatchJobResponse>>) {
      v1::WatchJobResponse message;
      if (!stream->Read(&message)) break;
    } else if constexpr (std::is_same_v<std::remove_reference_t<decltype(*stream)>,
                                        grpc::ClientReader<v1::GenerateResponse>>) {
      v1::GenerateResponse message;
      if (!stream->Read(&message)) break;
    } else {
      v1::ReadCheckpointResponse message;
      if (!stream->Read(&message)) break;
    }
  }
  return stream->Finish().error_code();
}

TEST_F(RequestsE2e, MalformedRequestsEndWithTheirCode) {
  start();
  submit({}, "good");
  ASSERT_TRUE(reaches("good", "succeeded"));
  using Jobs = v1::JobService::Stub;
  const auto stub = jobs();
  for (const auto* name : {"", "..", "../../etc/passwd", "/etc", "A", "jobs/", "a/b", "x%2e"}) {
    v1::GetJobRequest get;
    get.set_name(name);
    EXPECT_EQ(call(*stub, &Jobs::GetJob, get), grpc::StatusCode::INVALID_ARGUMENT) << name;
  }
  v1::GetJobRequest nobody;
  nobody.set_name("nobody");
  EXPECT_EQ(call(*stub, &Jobs::GetJob, nobody), grpc::StatusCode::NOT_FOUND);
  v1::ListJobsRequest list;
  list.set_page_size(-1);
  EXPECT_EQ(call(*stub, &Jobs::ListJobs, list), grpc::StatusCode::INVALID_ARGUMENT);
  list.set_page_size(1 << 30);
  list.set_page_token("made up");
  EXPECT_EQ(call(*stub, &Jobs::ListJobs, list), grpc::StatusCode::INVALID_ARGUMENT);
  v1::CancelJobRequest cancel;
  cancel.set_name("good");
  EXPECT_EQ(call(*stub, &Jobs::CancelJob, cancel), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(call(*stub, &Jobs::SubmitJob, v1::SubmitJobRequest()),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::SubmitJobRequest huge;
  huge.mutable_spec()->mutable_run()->mutable_sample()->set_prompt(std::string(5 << 20, 'x'));
  EXPECT_EQ(call(*stub, &Jobs::SubmitJob, huge), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::SubmitJobRequest odd;
  odd.mutable_spec()->mutable_run()->mutable_optimizer()->set_type(
      static_cast<v1::OptimizerType>(99));
  EXPECT_EQ(call(*stub, &Jobs::SubmitJob, odd), grpc::StatusCode::INVALID_ARGUMENT);

  v1::WatchJobRequest watch;
  watch.set_name("good");
  for (const auto& [revision, code] :
       {std::pair<std::int64_t, grpc::StatusCode>{-1, grpc::StatusCode::INVALID_ARGUMENT},
        {1LL << 40, grpc::StatusCode::OUT_OF_RANGE}}) {
    grpc::ClientContext context;
    watch.set_after_revision(revision);
    EXPECT_EQ(end_of(stub->WatchJob(&context, watch)), code) << revision;
  }
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  const auto checkpoints = v1::CheckpointService::NewStub(channel);
  for (const auto* name :
       {"", "checkpoints/good/..", "checkpoints/good/../../journal", "/etc/passwd"}) {
    grpc::ClientContext context;
    v1::ReadCheckpointRequest read;
    read.set_name(name);
    EXPECT_EQ(end_of(checkpoints->ReadCheckpoint(&context, read)),
              grpc::StatusCode::INVALID_ARGUMENT)
        << name;
  }
  const auto generation = v1::GenerateService::NewStub(channel);
  for (int i = 0; i < 4; ++i) {
    grpc::ClientContext context;
    v1::GenerateRequest generate;
    if (i > 0) generate.set_job("good");
    if (i != 1) generate.set_prompt("a");
    if (i == 2) generate.mutable_params()->set_top_p(2);
    if (i == 3) generate.mutable_params()->set_max_tokens(-1);
    EXPECT_EQ(end_of(generation->Generate(&context, generate)), grpc::StatusCode::INVALID_ARGUMENT)
        << i;
  }
  submit({}, "after");
  EXPECT_TRUE(reaches("after", "succeeded"));
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
    end_of(stub->WatchJob(&context, watch));
  }
  EXPECT_EQ(job("endless")["state"], "running");
  EXPECT_EQ(client({"job", "cancel", "endless"}).exit_code, 0);
  EXPECT_TRUE(reaches("endless", "cancelled"));
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
  EXPECT_EQ(client({"generate", "--job", "a"}).exit_code, 2);
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
