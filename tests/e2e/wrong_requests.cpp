// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/wrong_requests.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"
#include "v1/job_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

using namespace std::chrono_literals;

constexpr int kPublicMessageBytes = 4 << 20;

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

/// The status that a stream ends with, all of it read.
template <typename Response>
grpc::StatusCode end_of(const std::unique_ptr<grpc::ClientReader<Response>>& stream) {
  Response message;
  while (stream->Read(&message)) {
  }
  return stream->Finish().error_code();
}

}  // namespace

std::string config(const std::string& training, const std::string& model, const std::string& data,
                   const std::string& extra) {
  return fmt::format("run:\n  model: {}\n  training: {}\n  data: {}\n{}", model, training, data,
                     extra);
}

std::vector<WrongConfig> wrong_configs() {
  const std::string good = "{steps: 2, seq_len: 32, global_batch_size: 4}";
  const std::string tiny = "{preset: byte_gpt_tiny}";
  const std::string text = "{path: text.txt}";
  return {
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
      {config(good, tiny, text, "  mesh: {cp: 3}\n"), "bad.yaml:5: run.mesh.cp"},
      {config(good, tiny, text, "  plan: {context_parallel: {load_balancer: tail_head}}\n"),
       "bad.yaml:5: run.plan.context_parallel.load_balancer"},
      {config(good, tiny, text, "  plan: {context_parallel: {load_balancer: per_document}}\n"),
       "needs run.data.document_mask"},
      {config(good, tiny, text,
              "  mesh: {cp: 2}\n"
              "  plan: {context_parallel: {rotate: ulysses, ulysses_degree: 3}}\n"),
       "bad.yaml:6: run.plan.context_parallel.ulysses_degree"},
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
}

void send_wrong_requests(const std::string& address, const std::string& job) {
  using Jobs = v1::JobService::Stub;
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const auto stub = v1::JobService::NewStub(channel);
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
  watch.set_name(job);
  for (const auto& [revision, code] :
       {std::pair<std::int64_t, grpc::StatusCode>{-1, grpc::StatusCode::INVALID_ARGUMENT},
        {1LL << 40, grpc::StatusCode::OUT_OF_RANGE}}) {
    grpc::ClientContext context;
    watch.set_after_revision(revision);
    EXPECT_EQ(end_of(stub->WatchJob(&context, watch)), code) << revision;
  }
  const auto checkpoints = v1::CheckpointService::NewStub(channel);
  for (const std::string& name :
       {std::string(), "checkpoints/" + job + "/..", "checkpoints/" + job + "/../../journal",
        std::string("/etc/passwd")}) {
    grpc::ClientContext context;
    v1::ReadCheckpointRequest read;
    read.set_name(name);
    EXPECT_EQ(end_of(checkpoints->ReadCheckpoint(&context, read)),
              grpc::StatusCode::INVALID_ARGUMENT)
        << name;
  }
  const auto generation = v1::GenerateService::NewStub(channel);
  const auto generate = [&](const std::function<void(v1::GenerateRequest&)>& change) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    v1::GenerateRequest request;
    request.set_job(job);
    request.set_prompt("a");
    request.mutable_params()->set_max_tokens(2);
    change(request);
    return end_of(generation->Generate(&context, request));
  };
  const std::pair<const char*, std::function<void(v1::GenerateRequest&)>> wrong[] = {
      {"no source", [](auto& r) { r.clear_job(); }},
      {"two prompts", [](auto& r) { r.add_token_ids(1); }},
      {"top_p", [](auto& r) { r.mutable_params()->set_top_p(2); }},
      {"temperature", [](auto& r) { r.mutable_params()->set_temperature(-1); }},
      {"negative max_tokens", [](auto& r) { r.mutable_params()->set_max_tokens(-1); }},
      {"max_tokens", [](auto& r) { r.mutable_params()->set_max_tokens(1 << 30); }},
      {"longer than the context", [](auto& r) { r.set_prompt(std::string(5'000, 'x')); }},
      {"ids longer than the context",
       [](auto& r) {
         r.clear_prompt();
         for (int i = 0; i < 5'000; ++i) r.add_token_ids(1);
       }},
      {"as long as a message may be",
       [](auto& r) { r.set_prompt(std::string(kPublicMessageBytes - 30, 'x')); }},
      {"outside the vocabulary",
       [](auto& r) {
         r.clear_prompt();
         r.add_token_ids(256);
       }},
      {"a negative id",
       [](auto& r) {
         r.clear_prompt();
         r.add_token_ids(-1);
       }},
      {"a prompt and prompts", [](auto& r) { r.add_prompts()->set_prompt("b"); }},
      {"an empty one of several",
       [](auto& r) {
         r.clear_prompt();
         r.add_prompts()->set_prompt("b");
         r.add_prompts();
       }},
      {"one of several longer than the context",
       [](auto& r) {
         r.clear_prompt();
         r.add_prompts()->set_prompt("b");
         r.add_prompts()->set_prompt(std::string(5'000, 'x'));
       }},
      {"negative samples", [](auto& r) { r.set_samples(-2); }},
      {"too many samples", [](auto& r) { r.set_samples(65); }},
      {"more samples than are counted", [](auto& r) { r.set_samples(0x7fffffff); }},
      {"too many prompts",
       [](auto& r) {
         r.clear_prompt();
         for (int i = 0; i < 400'000; ++i) r.add_prompts()->add_token_ids(1);
       }},
      {"too many tokens of all sequences",
       [](auto& r) {
         r.set_samples(64);
         r.mutable_params()->set_max_tokens(1'025);
       }},
  };
  for (const auto& [what, change] : wrong)
    EXPECT_EQ(generate(change), grpc::StatusCode::INVALID_ARGUMENT) << what;
  EXPECT_EQ(generate([](auto& r) { r.set_prompt(std::string(5 << 20, 'x')); }),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(generate([](auto&) {}), grpc::StatusCode::OK);
  EXPECT_EQ(generate([](auto& r) { r.set_samples(64); }), grpc::StatusCode::OK);
}

}  // namespace meshloom::e2e
