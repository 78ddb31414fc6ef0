// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/cli/commands.h"
#include "daemon/cli/generate_printer.h"
#include "daemon/cli/generate_prompts.h"
#include "daemon/cli/interrupt.h"

namespace meshloom::cli {
namespace {

struct GenerateOptions {
  std::string job, checkpoint, hf_folder;
  PromptOptions prompts;
  int samples = 1;
  std::optional<double> temperature, top_p;
  int max_tokens = 0;
  int top_k = 0;
  std::uint64_t seed = 0;
};

v1::GenerateRequest make_request(const GenerateOptions& options,
                                 const std::vector<v1::Prompt>& prompts) {
  v1::GenerateRequest request;
  if (!options.job.empty()) request.set_job(options.job);
  if (!options.checkpoint.empty()) request.set_checkpoint(options.checkpoint);
  if (!options.hf_folder.empty()) request.set_hf_folder(options.hf_folder);
  if (prompts.size() == 1) {
    request.set_prompt(prompts[0].prompt());
    *request.mutable_token_ids() = prompts[0].token_ids();
  } else {
    request.mutable_prompts()->Assign(prompts.begin(), prompts.end());
  }
  request.set_samples(options.samples);
  auto& params = *request.mutable_params();
  params.set_max_tokens(options.max_tokens);
  params.set_top_k(options.top_k);
  params.set_seed(options.seed);
  if (options.temperature) params.set_temperature(*options.temperature);
  if (options.top_p) params.set_top_p(*options.top_p);
  return request;
}

/// The text in front of each sequence, by index.
std::vector<std::string> texts_of(const GenerateOptions& options,
                                  const std::vector<v1::Prompt>& prompts) {
  std::vector<std::string> texts;
  for (const v1::Prompt& prompt : prompts)
    texts.insert(texts.end(), static_cast<std::size_t>(options.samples), prompt.prompt());
  return texts;
}

ExitCode generate(Client& client, bool json, const GenerateOptions& options) {
  const std::vector<v1::Prompt> prompts = read_prompts(options.prompts);
  const v1::GenerateRequest request = make_request(options, prompts);
  grpc::ClientContext context;
  const auto stream = client.generation().Generate(&context, request);
  const InterruptScope interrupt([&] { context.TryCancel(); });
  std::unique_ptr<GeneratePrinter> printer;
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
    if (!printer)
      printer = std::make_unique<GeneratePrinter>(json, texts_of(options, prompts), options.seed);
    printer->print(response);
  }
  if (printer) printer->end();
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) return kInterrupted;
  if (!status.ok()) client.fail(status);
  return kOk;
}

void add_prompt_options(CLI::App& command, GenerateOptions& options) {
  auto* prompt = command.add_option_group("prompt", "What to continue");
  prompt
      ->add_option("--prompt", options.prompts.texts,
                   "Text, for models of bytes. Given several times: several sequences, drawn "
                   "together, each as it would be alone")
      ->allow_extra_args(false);
  prompt
      ->add_option("--tokens", options.prompts.tokens,
                   "Token ids, separated by commas. Given several times: as --prompt")
      ->allow_extra_args(false);
  prompt->add_option("--prompts-file", options.prompts.file,
                     "A file with one prompt of text in each line");
  prompt->require_option(1);
  command
      .add_option("--samples", options.samples,
                  "Sequences of each prompt, default 1; at most 64 in all")
      ->check(CLI::Range(1, 64));
}

}  // namespace

void add_generate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("generate", "Continue a prompt with a model, token by token");
  auto options = std::make_shared<GenerateOptions>();
  auto* source = command->add_option_group("model", "Where the model comes from");
  source->add_option("--job", options->job,
                     "A job: as it is now where it runs, else its newest checkpoint or export");
  source->add_option("--checkpoint", options->checkpoint,
                     "checkpoints/JOB/step-N, as checkpoint list shows it");
  source->add_option("--hf-folder", options->hf_folder,
                     "A Hugging Face folder below the daemon's data dir");
  source->require_option(1);
  add_prompt_options(*command, *options);
  command->add_option("--max-tokens", options->max_tokens, "Of each sequence, default 256");
  command->add_option("--temperature", options->temperature,
                      "Default 1; 0 takes the likeliest token");
  command->add_option("--top-k", options->top_k, "Only among the k likeliest tokens; 0: all");
  command->add_option("--top-p", options->top_p,
                      "Only among the likeliest tokens that make up this probability");
  command->add_option("--seed", options->seed,
                      "The same seed gives the same text; of several sequences the first takes the "
                      "seed, each other one the next number");
  command->footer(
      "Tokenizers are not part of this version: models whose vocabulary is not the 256 bytes take "
      "and give token ids.\nOf several sequences each is shown whole when it has ended, in their "
      "order; with --json each line is a token with the index of its sequence.\n"
      "Example: meshloom generate --job job-1 --prompt \"In the beginning\" --temperature 0.8");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return generate(client, context.json, *options);
    };
  });
}

}  // namespace meshloom::cli
