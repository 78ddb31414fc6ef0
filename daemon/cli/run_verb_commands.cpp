// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/run_verb_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "daemon/cli/download_command.h"
#include "daemon/cli/operation_output.h"
#include "daemon/cli/operation_watch.h"
#include "daemon/cli/output.h"
#include "daemon/cli/sampling_options.h"

namespace meshloom::cli {
namespace {

struct SaveOptions {
  std::string run, token, name, dtype;
  bool overwrite = false, memory = false;
  std::int64_t ttl_seconds = 0;
  std::vector<std::string> metadata;  ///< KEY=VALUE
};

struct BatchOptions {
  std::string run, token, data, reduction = "sum";
  std::int64_t samples = 1, first_sample = 0, epoch = 0, seq_len = 0;
  bool forward_only = false, document_mask = false;

  v1::LossBatch batch() const {
    v1::LossBatch batch;
    batch.set_loss("cross_entropy");
    batch.set_reduction(reduction == "sum" ? v1::LOSS_REDUCTION_SUM
                                           : v1::LOSS_REDUCTION_TOKEN_MEAN);
    v1::DataReference& reference = *batch.mutable_reference();
    reference.mutable_data()->set_path(data);
    reference.mutable_data()->set_document_mask(document_mask);
    reference.set_samples(samples);
    reference.set_first_sample(first_sample);
    reference.set_epoch(epoch);
    reference.set_seq_len(seq_len);
    return batch;
  }
};

struct StepOptions {
  std::string run, token;
  std::optional<double> lr, grad_clip_norm;
};

struct SampleOptions : SamplingOptions {
  std::string run, token, weights;
  bool prompt_log_probs = false, exact_log_probs = false;
  bool watch = false, ids = false;
};

struct DeleteOptions {
  std::string name, token;
};

/// The run's next verb. Its number is taken from the run as it is now.
template <typename Request>
Request next_verb(Client& client, const std::string& name) {
  const v1::Run run = get_run(client, name);
  Request request;
  request.mutable_id()->set_run(run.name());
  request.mutable_id()->set_epoch(run.epoch());
  request.mutable_id()->set_seq(run.next_seq());
  return request;
}

ExitCode show_end(Client& client, bool json, const v1::Operation& begun, const std::string& token) {
  const v1::Operation operation = wait_for_operation(client, begun.name(), token);
  if (json) {
    print_json(operation);
  } else {
    print_operation(operation);
  }
  return kOk;
}

ExitCode save_state(Client& client, bool json, const SaveOptions& options) {
  auto request = next_verb<v1::SaveStateRequest>(client, options.run);
  request.set_name(options.name);
  request.set_overwrite(options.overwrite);
  request.set_ttl_seconds(options.ttl_seconds);
  for (const std::string& item : options.metadata) {
    const auto equals = item.find('=');
    if (equals == std::string::npos)
      throw CliError(kUsage, fmt::format("--metadata {}: expected KEY=VALUE", item));
    (*request.mutable_user_metadata())[item.substr(0, equals)] = item.substr(equals + 1);
  }
  const auto response = client.call(client.runs(), &v1::RunService::Stub::SaveState, request,
                                    {.run_token = options.token});
  return show_end(client, json, response.operation(), options.token);
}

ExitCode save_weights(Client& client, bool json, const SaveOptions& options) {
  auto request = next_verb<v1::SaveWeightsRequest>(client, options.run);
  request.set_name(options.name);
  request.set_dtype(options.dtype);
  if (options.memory) request.set_storage(v1::WEIGHTS_STORAGE_MEMORY);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::SaveWeights, request,
                                    {.run_token = options.token});
  return show_end(client, json, response.operation(), options.token);
}

ExitCode train_on(Client& client, bool json, const BatchOptions& options) {
  v1::Operation begun;
  if (options.forward_only) {
    auto request = next_verb<v1::ForwardRequest>(client, options.run);
    *request.mutable_batch() = options.batch();
    begun = client
                .call(client.runs(), &v1::RunService::Stub::Forward, request,
                      {.run_token = options.token})
                .operation();
  } else {
    auto request = next_verb<v1::ForwardBackwardRequest>(client, options.run);
    *request.mutable_batch() = options.batch();
    begun = client
                .call(client.runs(), &v1::RunService::Stub::ForwardBackward, request,
                      {.run_token = options.token})
                .operation();
  }
  return show_end(client, json, begun, options.token);
}

ExitCode optim_step(Client& client, bool json, const StepOptions& options) {
  auto request = next_verb<v1::OptimStepRequest>(client, options.run);
  if (options.lr) request.mutable_params()->set_lr(*options.lr);
  if (options.grad_clip_norm) request.mutable_params()->set_grad_clip_norm(*options.grad_clip_norm);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::OptimStep, request,
                                    {.run_token = options.token});
  return show_end(client, json, response.operation(), options.token);
}

v1::SampleRequest make_request(const v1::Run& run, const SampleOptions& options) {
  v1::SampleRequest request;
  request.set_run(run.name());
  request.set_epoch(run.epoch());
  for (const v1::Prompt& prompt : read_prompts(options.prompts)) *request.add_prompts() = prompt;
  request.set_samples(options.samples);
  *request.mutable_params() = options.params();
  request.set_weights(options.weights);
  *request.mutable_stop() = options.stop();
  request.set_prompt_logprobs(options.prompt_log_probs);
  request.set_exact_logprobs(options.exact_log_probs);
  return request;
}

/// What the daemon makes of the tokens of a sample that has ended, a text for each sequence: of
/// models of bytes and those with a tokenizer.
std::vector<std::string> drawn_texts(Client& client, const std::string& operation, int sequences) {
  grpc::ClientContext context;
  client.introduce(context);
  v1::WatchOperationRequest request;
  request.set_name(operation);
  const auto stream = client.operations().WatchOperation(&context, request);
  std::vector<std::string> texts(static_cast<std::size_t>(sequences));
  for (v1::WatchOperationResponse response; stream->Read(&response);)
    if (response.has_tokens())
      texts.at(static_cast<std::size_t>(response.tokens().sequence())) += response.tokens().text();
  const grpc::Status status = stream->Finish();
  if (!status.ok()) client.fail(status);
  return texts;
}

/// As token ids where `texts` is empty or has nothing.
void print_sequences(const v1::SampleRequest& request, const v1::SampleOutput& output,
                     const std::vector<std::string>& texts) {
  const bool has_text = std::any_of(texts.begin(), texts.end(),
                                    [](const std::string& text) { return !text.empty(); });
  for (int i = 0; i < output.sequences_size(); ++i) {
    const v1::SampledSequence& sequence = output.sequences(i);
    if (output.sequences_size() > 1) fmt::print("--- prompt {}\n", sequence.prompt());
    if (has_text)
      fmt::print("{}{}\n", request.prompts(sequence.prompt()).prompt(),
                 texts[static_cast<std::size_t>(i)]);
    else
      fmt::print("{}\n", fmt::join(sequence.token_ids(), " "));
  }
}

ExitCode sample(Client& client, bool json, const SampleOptions& options) {
  const v1::Run run = get_run(client, options.run);
  const v1::SampleRequest request = make_request(run, options);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::Sample, request,
                                    {.run_token = options.token});
  if (options.watch) return watch_operation(client, {response.operation().name(), json});
  const v1::Operation operation =
      wait_for_operation(client, response.operation().name(), options.token);
  if (json) {
    print_json(operation);
    return kOk;
  }
  const v1::SampleOutput& output = operation.result().sample();
  const int sequences = output.sequences_size();
  print_sequences(
      request, output,
      options.ids ? std::vector<std::string>() : drawn_texts(client, operation.name(), sequences));
  return kOk;
}

ExitCode delete_weights(Client& client, bool json, const DeleteOptions& options) {
  v1::DeleteWeightsRequest request;
  request.set_name(options.name);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::DeleteWeights, request,
                                    {.run_token = options.token});
  if (json)
    print_json(response);
  else
    fmt::print("{}: deleted\n", options.name);
  return kOk;
}

constexpr const char* kTakesNextNumber =
    "It takes the run's next number: a client that drives the run must not send verbs meanwhile.";

void add_train_on(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "forward-backward", "Add the gradients of samples of data that the daemon's ranks read");
  auto options = std::make_shared<BatchOptions>();
  add_run_and_token(*command, options->run, options->token);
  command->add_option("--data", options->data, "A file or a folder below the daemon's data dir")
      ->required();
  command->add_option("--samples", options->samples, "How many")->capture_default_str();
  command->add_option("--first", options->first_sample, "The first of them in its epoch")
      ->capture_default_str();
  command->add_option("--epoch", options->epoch, "Whose order numbers them")->capture_default_str();
  command->add_option("--seq", options->seq_len, "Tokens of a sample; 0: the run's longest datum");
  command->add_option("--reduction", options->reduction, "sum or token_mean")
      ->check(CLI::IsMember({"sum", "token_mean"}));
  command->add_flag("--document-mask", options->document_mask,
                    "Attention and loss stay inside a document");
  command->add_flag("--forward-only", options->forward_only, "Losses alone, no gradients");
  command->footer(kTakesNextNumber);
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return train_on(client, context.json, *options);
    };
  });
}

void add_optim_step(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand("optim-step", "Apply the gradients since the last one");
  auto options = std::make_shared<StepOptions>();
  add_run_and_token(*command, options->run, options->token);
  command->add_option("--lr", options->lr, "Learning rate; left out: the run's");
  command->add_option("--grad-clip-norm", options->grad_clip_norm, "0: not clipped");
  command->footer(kTakesNextNumber);
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return optim_step(client, context.json, *options);
    };
  });
}

using SaveAction = ExitCode (*)(Client&, bool json, const SaveOptions&);

std::shared_ptr<SaveOptions> add_save(CLI::App& command, CommandContext& context,
                                      SaveAction action) {
  auto options = std::make_shared<SaveOptions>();
  add_run_and_token(command, options->run, options->token);
  command.footer(kTakesNextNumber);
  command.callback([&context, options, action] {
    context.action = [&context, options, action](Client& client) {
      return action(client, context.json, *options);
    };
  });
  return options;
}

void add_delete_weights(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand("delete-weights", "Let saved weights go, with their files");
  auto options = std::make_shared<DeleteOptions>();
  command->add_option("name", options->name, "runs/RUN/weights/NAME")->required();
  command->add_option("--token", options->token, "The run's, as run create printed it")->required();
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return delete_weights(client, context.json, *options);
    };
  });
}

void add_sample(CLI::App& runs, CommandContext& context) {
  auto* command =
      runs.add_subcommand("sample", "Draw tokens from a run's weights, as they are or as saved");
  auto options = std::make_shared<SampleOptions>();
  add_run_and_token(*command, options->run, options->token);
  add_sampling_options(*command, *options);
  command->add_option(
      "--weights", options->weights,
      "Saved weights to draw from, runs/RUN/weights/NAME, instead of the run's own");
  command->add_flag("--prompt-logprobs", options->prompt_log_probs,
                    "Log-probs of the prompts' tokens too");
  command->add_flag("--exact-logprobs", options->exact_log_probs,
                    "Log-probs of the drawn tokens as forward gives them, bit for bit");
  auto* watch = command->add_flag("--watch", options->watch, "Show tokens as they are drawn");
  command->add_flag("--ids", options->ids, "Show token ids, also where there is text")
      ->excludes(watch);
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return sample(client, context.json, *options);
    };
  });
}

}  // namespace

void add_run_verbs(CLI::App& runs, CommandContext& context) {
  add_train_on(runs, context);
  add_optim_step(runs, context);
  auto* state = runs.add_subcommand("save-state", "Save weights, moments and step under a name");
  const auto state_options = add_save(*state, context, &save_state);
  state->add_option("name", state_options->name, "Of the state, such as step-100")->required();
  state->add_flag("--overwrite", state_options->overwrite, "Take the place of one with this name");
  state->add_option("--ttl", state_options->ttl_seconds,
                    "Seconds that it is kept for while a daemon runs; 0: until it is deleted");
  state->add_option("--metadata", state_options->metadata, "KEY=VALUE, kept along; several times");
  auto* weights = runs.add_subcommand(
      "save-weights", "Keep the weights: as a Hugging Face folder at rank 0, or in memory");
  const auto weights_options = add_save(*weights, context, &save_weights);
  weights->add_option("name", weights_options->name, "Of the folder, below the run's")->required();
  weights->add_option("--dtype", weights_options->dtype,
                      "float32 (the default), bfloat16 or float16");
  weights->add_flag("--memory", weights_options->memory,
                    "In the memory of the ranks, to be sampled from after later steps");
  auto* download =
      runs.add_subcommand("download-weights", "Copy weights on disk into a new folder");
  add_download(*download, context, "runs/RUN/weights/NAME, as run show shows it");
  add_delete_weights(runs, context);
  add_sample(runs, context);
}

}  // namespace meshloom::cli
