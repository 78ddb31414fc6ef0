// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <deque>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "kernels/base/error.h"
#include "tests/bench/bench.h"
#include "tests/bench/daemon_process.h"
#include "v1/job_service.grpc.pb.h"
#include "v1/model_service.grpc.pb.h"
#include "v1/operation_service.grpc.pb.h"
#include "v1/run_service.grpc.pb.h"

namespace meshloom::bench {
namespace {

struct ControlOptions {
  DaemonProcess::Options daemon;
  std::string model = "byte_gpt_10m";
  int seq = 256;
  int batch = 12;
  int steps = 8;
  int rounds = 5;
  int models = 0, operations = 0;
};

void check_call(const grpc::Status& status, const char* call) {
  if (!status.ok()) throw InternalError(fmt::format("{}: {}", call, status.error_message()));
}

/// A run and the verbs that are timed.
class Run {
 public:
  Run(const std::shared_ptr<grpc::Channel>& channel, const v1::RunConfig& config)
      : runs_(v1::RunService::NewStub(channel)),
        operations_(v1::OperationService::NewStub(channel)) {
    v1::CreateRunRequest request;
    *request.mutable_spec()->mutable_config() = config;
    grpc::ClientContext context;
    v1::CreateRunResponse response;
    check_call(runs_->CreateRun(&context, request, &response), "CreateRun");
    name_ = response.run().name();
    token_ = response.token();
    wait(skip());
  }
  ~Run() {
    v1::CloseRunRequest request;
    request.set_name(name_);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-run-token", token_);
    v1::CloseRunResponse response;
    runs_->CloseRun(&context, request, &response);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::string forward_backward(const v1::LossBatch& batch) {
    v1::ForwardBackwardRequest request;
    *request.mutable_batch() = batch;
    return call<v1::ForwardBackwardResponse>(&v1::RunService::Stub::ForwardBackward, request);
  }
  std::string optim_step() {
    return call<v1::OptimStepResponse>(&v1::RunService::Stub::OptimStep, v1::OptimStepRequest());
  }
  /// A verb that computes nothing.
  std::string skip() {
    v1::SkipRequest request;
    request.set_verb("optim_step");
    return call<v1::SkipResponse>(&v1::RunService::Stub::Skip, request);
  }
  const std::string& name() const { return name_; }
  std::string sample(int samples, int max_tokens) {
    v1::SampleRequest request;
    request.set_run(name_);
    request.set_epoch(1);
    request.add_prompts()->set_prompt("abcdefgh");
    request.set_samples(samples);
    request.mutable_params()->set_max_tokens(max_tokens);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-run-token", token_);
    v1::SampleResponse response;
    check_call(runs_->Sample(&context, request, &response), "Sample");
    return response.operation().name();
  }
  void heartbeat() {
    v1::HeartbeatRequest request;
    request.set_name(name_);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-run-token", token_);
    v1::HeartbeatResponse response;
    check_call(runs_->Heartbeat(&context, request, &response), "Heartbeat");
  }
  v1::Operation wait(const std::string& operation) {
    v1::WaitOperationRequest request;
    request.set_name(operation);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-run-token", token_);
    v1::WaitOperationResponse response;
    check_call(operations_->WaitOperation(&context, request, &response), "WaitOperation");
    if (response.operation().state() != v1::OPERATION_STATE_SUCCEEDED)
      throw InternalError(fmt::format("{}: {}", operation, response.operation().error().message()));
    return response.operation();
  }

 private:
  template <typename Response, typename Method, typename Request>
  std::string call(Method method, Request request) {
    request.mutable_id()->set_run(name_);
    request.mutable_id()->set_epoch(1);
    request.mutable_id()->set_seq(++seq_);
    grpc::ClientContext context;
    context.AddMetadata("meshloom-run-token", token_);
    Response response;
    check_call((runs_.get()->*method)(&context, request, &response), "a verb");
    return response.operation().name();
  }

  std::unique_ptr<v1::RunService::Stub> runs_;
  std::unique_ptr<v1::OperationService::Stub> operations_;
  std::string name_, token_;
  std::int64_t seq_ = 0;
};

v1::LossBatch random_batch(std::mt19937& random, int samples, int length) {
  v1::LossBatch batch;
  batch.set_loss("cross_entropy");
  batch.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
  batch.set_tokens(static_cast<std::int64_t>(samples) * length);
  for (int i = 0; i < samples; ++i) {
    v1::Datum& datum = *batch.add_data();
    for (int t = 0; t < length; ++t) {
      datum.add_tokens(static_cast<int>(random() % 256));
      datum.add_targets(static_cast<int>(random() % 256));
    }
  }
  return batch;
}

/// One layer of eight channels: what its verbs take is the control plane's.
v1::RunConfig tiny_config(const DaemonProcess& daemon) {
  std::ofstream(daemon.data_dir() / "tiny.json")
      << R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 8, "n_layer": 1,
             "n_head": 1})";
  v1::RunConfig config;
  config.mutable_model()->set_config("tiny.json");
  return config;
}

nlohmann::json time_verbs(const DaemonProcess& daemon,
                          const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int kVerbs = 100;
  std::mt19937 random(1);
  Run run(channel, tiny_config(daemon));
  const v1::LossBatch batch = random_batch(random, 1, 8);
  std::vector<double> idle, computing, pipelined;
  for (int i = 0; i < 5; ++i) run.wait(run.forward_backward(batch));
  for (int i = 0; i < kVerbs; ++i) {
    auto begin = Clock::now();
    run.wait(run.skip());
    idle.push_back(seconds_since(begin));
    begin = Clock::now();
    run.wait(run.forward_backward(batch));
    computing.push_back(seconds_since(begin));
  }
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    std::string last;
    for (int i = 0; i < kVerbs; ++i) last = run.forward_backward(batch);
    run.wait(last);
    pipelined.push_back(seconds_since(begin) / kVerbs);
  }
  return {{"idle_verb_ms", 1e3 * percentile(idle, 0.5)},
          {"tiny_forward_backward_ms", 1e3 * percentile(computing, 0.5)},
          {"pipelined_forward_backward_ms", 1e3 * percentile(pipelined, 0.5)}};
}

/// Milliseconds of each page of a list.
template <typename Request, typename Response, typename Stub>
std::vector<double> time_pages(Stub& stub,
                               grpc::Status (Stub::*list)(grpc::ClientContext*, const Request&,
                                                          Response*),
                               Request request) {
  std::vector<double> pages;
  do {
    grpc::ClientContext context;
    Response response;
    const auto begin = Clock::now();
    check_call((stub.*list)(&context, request, &response), "a list");
    pages.push_back(1e3 * seconds_since(begin));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return pages;
}

nlohmann::json summary(const std::vector<double>& pages) {
  return {{"pages", pages.size()},
          {"p50_ms", percentile(pages, 0.5)},
          {"most_ms", percentile(pages, 1.0)}};
}

nlohmann::json time_models(int count, const std::shared_ptr<grpc::Channel>& channel) {
  const auto models = v1::ModelService::NewStub(channel);
  std::vector<std::thread> makers;
  constexpr int kMakers = 16;  // whose records are written together
  std::atomic<int> made{0};
  for (int maker = 0; maker < kMakers; ++maker)
    makers.emplace_back([&, maker] {
      for (int i = maker; i < count; i += kMakers) {
        v1::CreateModelRequest request;
        request.set_name(fmt::format("m{}", i));
        request.set_preset("byte_gpt_tiny");
        grpc::ClientContext context;
        v1::CreateModelResponse response;
        if (models->CreateModel(&context, request, &response).ok()) ++made;
      }
    });
  for (std::thread& maker : makers) maker.join();
  if (made != count)
    throw InternalError(fmt::format("{} of {} models were made", made.load(), count));
  v1::ListModelsRequest request;
  request.set_page_size(1000);
  return summary(time_pages(*models, &v1::ModelService::Stub::ListModels, request));
}

nlohmann::json time_operations(int count, const DaemonProcess& daemon,
                               const std::shared_ptr<grpc::Channel>& channel) {
  Run run(channel, tiny_config(daemon));
  std::string last;
  for (int i = 0; i < count; ++i) last = run.skip();
  run.wait(last);
  const auto operations = v1::OperationService::NewStub(channel);
  v1::ListOperationsRequest request;
  request.set_run(run.name());
  request.set_page_size(500);
  return summary(time_pages(*operations, &v1::OperationService::Stub::ListOperations, request));
}

/// Heartbeats while 2,000 samples of a tiny model are in flight.
nlohmann::json time_heartbeats(const DaemonProcess& daemon,
                               const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int kSamples = 2000, kTokens = 64;
  Run run(channel, tiny_config(daemon));
  std::vector<double> idle, loaded;
  const auto beat = [&](std::vector<double>& seconds) {
    const auto begin = Clock::now();
    run.heartbeat();
    seconds.push_back(seconds_since(begin));
  };
  for (int i = 0; i < 50; ++i) beat(idle);
  std::atomic<bool> over{false};
  std::thread heart([&] {
    for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(5))) beat(loaded);
  });
  const auto begin = Clock::now();
  std::vector<std::string> samples;
  for (int i = 0; i < kSamples; ++i) samples.push_back(run.sample(1, kTokens));
  const double submitted = seconds_since(begin);
  for (const std::string& sample : samples) run.wait(sample);
  const double ended = seconds_since(begin);
  over = true;
  heart.join();
  return {{"samples_in_flight", kSamples},
          {"samples_submitted_s", submitted},
          {"samples_ended_s", ended},
          {"heartbeats", loaded.size()},
          {"idle_heartbeat_ms", 1e3 * percentile(idle, 0.5)},
          {"loaded_heartbeat_ms", 1e3 * percentile(loaded, 0.5)},
          {"slowest_heartbeat_ms", 1e3 * percentile(loaded, 1.0)}};
}

v1::RunConfig model_config(const ControlOptions& options) {
  v1::RunConfig config;
  config.mutable_model()->set_preset(options.model);
  config.mutable_model()->set_dropout(0.0);
  config.mutable_plan()->set_dtype("float32");
  config.mutable_training()->set_seq_len(options.seq);
  config.mutable_training()->set_micro_batch_size(options.batch);
  return config;
}

/// Seconds of the steps of a job but for the first two.
double job_seconds_per_step(const ControlOptions& options,
                            const std::shared_ptr<grpc::Channel>& channel) {
  const auto jobs = v1::JobService::NewStub(channel);
  v1::SubmitJobRequest request;
  v1::RunConfig& config = *request.mutable_spec()->mutable_run();
  config = model_config(options);
  config.mutable_training()->clear_micro_batch_size();
  config.mutable_training()->set_steps(options.steps + 2);
  config.mutable_training()->set_global_batch_size(options.batch);
  config.mutable_data()->set_path("text.txt");
  grpc::ClientContext submit;
  v1::SubmitJobResponse submitted;
  check_call(jobs->SubmitJob(&submit, request, &submitted), "SubmitJob");
  v1::WatchJobRequest watch;
  watch.set_name(submitted.job().name());
  grpc::ClientContext context;
  const auto events = jobs->WatchJob(&context, watch);
  Clock::time_point begin, end;
  for (v1::WatchJobResponse event; events->Read(&event);) {
    if (!event.event().has_step()) continue;
    if (event.event().step().step() == 2) begin = Clock::now();
    end = Clock::now();
  }
  check_call(events->Finish(), "WatchJob");
  return std::chrono::duration<double>(end - begin).count() / options.steps;
}

/// The same driven verb by verb, two steps on their way.
double run_seconds_per_step(const ControlOptions& options,
                            const std::shared_ptr<grpc::Channel>& channel) {
  std::mt19937 random(2);
  Run run(channel, model_config(options));
  const v1::LossBatch batch = random_batch(random, options.batch, options.seq);
  std::deque<std::string> open;
  Clock::time_point begin, end;
  int done = 0;
  for (int step = 0; step < options.steps + 2 || !open.empty();) {
    for (; open.size() < 2 && step < options.steps + 2; ++step) {
      run.forward_backward(batch);
      open.push_back(run.optim_step());
    }
    run.wait(open.front());
    open.pop_front();
    if (++done == 2) begin = Clock::now();
    end = Clock::now();
  }
  return std::chrono::duration<double>(end - begin).count() / options.steps;
}

/// Eight samples of one prompt together, beside the same one after another.
nlohmann::json time_samples(const ControlOptions& options,
                            const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int kBatch = 8, kTokens = 64;
  Run run(channel, model_config(options));
  std::vector<double> together, alone, ratio;
  for (int round = 0; round <= options.rounds; ++round) {
    auto begin = Clock::now();
    run.wait(run.sample(kBatch, kTokens));
    together.push_back(seconds_since(begin));
    begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) run.wait(run.sample(1, kTokens));
    alone.push_back(seconds_since(begin));
    ratio.push_back(alone.back() / together.back());
  }
  return {{"eight_samples_together_s", percentile(together, 0.5)},
          {"eight_samples_alone_s", percentile(alone, 0.5)},
          {"alone_to_together", {{"p50", percentile(ratio, 0.5)}, {"all", ratio}}}};
}

void write_text(const DaemonProcess& daemon) {
  std::mt19937 random(3);
  std::ofstream file(daemon.data_dir() / "text.txt");
  for (int i = 0; i < 1 << 20; ++i) file.put(static_cast<char>('a' + random() % 26));
}

}  // namespace

int run_control_bench(int argc, char** argv) {
  ControlOptions options;
  CLI::App app("Times verbs of a run that a client drives, and its steps beside those of a job.",
               "meshloom-bench control");
  app.add_option("--daemon", options.daemon.daemon, "the meshloomd program")->capture_default_str();
  app.add_option("--client", options.daemon.client, "the meshloom program")->capture_default_str();
  app.add_option("--ranks", options.daemon.ranks, "ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.daemon.threads, "of a rank; 0: the daemon's default")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--model", options.model, "a preset of 256 bytes")->capture_default_str();
  app.add_option("--seq", options.seq, "tokens of a sample")->capture_default_str();
  app.add_option("--batch", options.batch, "samples of a step")->capture_default_str();
  app.add_option("--steps", options.steps, "steps that are timed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "of a job and a run; 0: verbs alone")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--models", options.models, "that are made and listed, 1000 a page")
      ->capture_default_str();
  app.add_option("--operations", options.operations, "of a run, listed 500 a page")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const DaemonProcess daemon(options.daemon);
  write_text(daemon);
  const auto channel = grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials());
  nlohmann::json line = {{"bench", "control"}, {"ranks", options.daemon.ranks}};
  line.update(time_verbs(daemon, channel));
  line.update(time_heartbeats(daemon, channel));
  line.update(time_samples(options, channel));
  if (options.models > 0) line["list_models"] = time_models(options.models, channel);
  if (options.operations > 0)
    line["list_operations"] = time_operations(options.operations, daemon, channel);
  std::vector<double> job, run, ratio;
  for (int round = 0; round < options.rounds; ++round) {
    job.push_back(job_seconds_per_step(options, channel));
    run.push_back(run_seconds_per_step(options, channel));
    ratio.push_back(job.back() / run.back());
  }
  if (options.rounds > 0) {
    const double tokens = static_cast<double>(options.batch) * options.seq;
    line["job_tokens_per_second"] = tokens / percentile(job, 0.5);
    line["run_tokens_per_second"] = tokens / percentile(run, 0.5);
    line["run_to_job"] = {{"p50", percentile(ratio, 0.5)}, {"all", ratio}};
  }
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace meshloom::bench
