// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/run_verb_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "daemon/cli/operation_output.h"
#include "daemon/cli/output.h"
#include "daemon/cli/sampling_options.h"

namespace meshloom::cli {
namespace {

constexpr std::int64_t kByteVocabulary = 256;

struct SaveOptions {
  std::string run, token, name, dtype;
  bool overwrite = false;
};

struct SampleOptions : SamplingOptions {
  std::string run, token;
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
  const auto response = client.call(client.runs(), &v1::RunService::Stub::SaveState, request,
                                    {.run_token = options.token});
  return show_end(client, json, response.operation(), options.token);
}

ExitCode save_weights(Client& client, bool json, const SaveOptions& options) {
  auto request = next_verb<v1::SaveWeightsRequest>(client, options.run);
  request.set_name(options.name);
  request.set_dtype(options.dtype);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::SaveWeights, request,
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
  return request;
}

void print_sequences(const v1::SampleRequest& request, const v1::SampleOutput& output, bool text) {
  for (const v1::SampledSequence& sequence : output.sequences()) {
    if (output.sequences_size() > 1) fmt::print("--- prompt {}\n", sequence.prompt());
    if (!text) {
      fmt::print("{}\n", fmt::join(sequence.token_ids(), " "));
      continue;
    }
    std::string drawn(sequence.token_ids().begin(), sequence.token_ids().end());
    fmt::print("{}{}\n", request.prompts(sequence.prompt()).prompt(), drawn);
  }
}

ExitCode sample(Client& client, bool json, const SampleOptions& options) {
  const v1::Run run = get_run(client, options.run);
  const v1::SampleRequest request = make_request(run, options);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::Sample, request,
                                    {.run_token = options.token});
  const v1::Operation operation =
      wait_for_operation(client, response.operation().name(), options.token);
  if (json) {
    print_json(operation);
  } else {
    print_sequences(request, operation.result().sample(), run.vocab_size() == kByteVocabulary);
  }
  return kOk;
}

using SaveAction = ExitCode (*)(Client&, bool json, const SaveOptions&);

std::shared_ptr<SaveOptions> add_save(CLI::App& command, CommandContext& context,
                                      SaveAction action) {
  auto options = std::make_shared<SaveOptions>();
  add_run_and_token(command, options->run, options->token);
  command.footer(
      "It takes the run's next number: a client that drives the run must not send verbs "
      "meanwhile.");
  command.callback([&context, options, action] {
    context.action = [&context, options, action](Client& client) {
      return action(client, context.json, *options);
    };
  });
  return options;
}

void add_sample(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand("sample", "Draw tokens from a run's weights as they are");
  auto options = std::make_shared<SampleOptions>();
  add_run_and_token(*command, options->run, options->token);
  add_sampling_options(*command, *options);
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return sample(client, context.json, *options);
    };
  });
}

}  // namespace

void add_run_verbs(CLI::App& runs, CommandContext& context) {
  auto* state = runs.add_subcommand("save-state", "Save weights, moments and step under a name");
  const auto state_options = add_save(*state, context, &save_state);
  state->add_option("name", state_options->name, "Of the state, such as step-100")->required();
  state->add_flag("--overwrite", state_options->overwrite, "Take the place of one with this name");
  auto* weights =
      runs.add_subcommand("save-weights", "Write the weights as a Hugging Face folder at rank 0");
  const auto weights_options = add_save(*weights, context, &save_weights);
  weights->add_option("name", weights_options->name, "Of the folder, below the run's")->required();
  weights->add_option("--dtype", weights_options->dtype,
                      "float32 (the default), bfloat16 or float16");
  add_sample(runs, context);
}

}  // namespace meshloom::cli
