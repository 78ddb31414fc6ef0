// SPDX-License-Identifier: Apache-2.0
// run sample: tokens that a run's weights draw.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"
#include "daemon/cli/runs/operation_watch.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/runs/run_verb.h"
#include "daemon/cli/sampling/generate_printer.h"
#include "daemon/cli/sampling/sampling_options.h"

namespace meshloom::cli {
namespace {

struct SampleOptions : SamplingOptions {
  std::string run;
  std::string weights;
  bool prompt_log_probs = false, exact_log_probs = false;
  bool watch = false, ids = false;
};

v1::SampleRequest sample_request(const v1::Run& run, const SampleOptions& options) {
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

ExitCode sample(Client& client, bool json, const SampleOptions& options) {
  const v1::Run run = get_run(client, options.run);
  const v1::SampleRequest request = sample_request(run, options);
  const auto response = client.call(client.runs(), &v1::RunService::Stub::Sample, request);
  if (options.watch) {
    const ExitCode code = watch_operation(client, {response.operation().name(), json});
    if (!json) tell_seed(options);
    return code;
  }
  const v1::Operation operation = wait_for_operation(client, json, response.operation().name());
  if (json) {
    print_json(operation);
    return kOk;
  }
  const v1::SampleOutput& output = operation.result().sample();
  const int sequences = output.sequences_size();
  std::vector<std::string> texts;
  if (!options.ids) texts = drawn_texts(client, operation.name(), sequences);
  // As token ids where `texts` is empty or has nothing.
  const bool has_text = std::any_of(texts.begin(), texts.end(),
                                    [](const std::string& text) { return !text.empty(); });
  std::size_t at_context = 0;
  for (int i = 0; i < sequences; ++i) {
    const v1::SampledSequence& sequence = output.sequences(i);
    if (sequence.finish_reason() == "context") ++at_context;
    if (sequences > 1) fmt::print("--- prompt {}\n", sequence.prompt());
    if (has_text) {
      std::fputs(request.prompts(sequence.prompt()).prompt().c_str(), stdout);
      print_drawn_text(texts[static_cast<std::size_t>(i)] + '\n');
    } else {
      fmt::print("{}\n", fmt::join(sequence.token_ids(), " "));
    }
  }
  note_full_contexts(at_context, static_cast<std::size_t>(sequences));
  tell_seed(options);
  return kOk;
}

}  // namespace

void add_run_sample(CLI::App& runs, CommandContext& context) {
  auto* command =
      runs.add_subcommand("sample", "Draw tokens from a run's weights, as they are or as saved");
  auto options = std::make_shared<SampleOptions>();
  add_target(*command, context, options->run);
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
  command->footer("Example: meshloom run sample my-run --prompt \"And God said\" --watch");
  set_action(*command, context, options, &sample);
}

}  // namespace meshloom::cli
