// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "daemon/cli/commands.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/output.h"

namespace meshloom::cli {
namespace {

struct GenerateOptions {
  std::string job, checkpoint, hf_folder;
  std::string prompt;
  std::vector<std::int64_t> tokens;
  std::optional<double> temperature, top_p;
  int max_tokens = 0;
  int top_k = 0;
  std::uint64_t seed = 0;
};

v1::GenerateRequest make_request(const GenerateOptions& options) {
  v1::GenerateRequest request;
  if (!options.job.empty()) request.set_job(options.job);
  if (!options.checkpoint.empty()) request.set_checkpoint(options.checkpoint);
  if (!options.hf_folder.empty()) request.set_hf_folder(options.hf_folder);
  request.set_prompt(options.prompt);
  for (const auto token : options.tokens) request.add_token_ids(token);
  auto& params = *request.mutable_params();
  params.set_max_tokens(options.max_tokens);
  params.set_top_k(options.top_k);
  params.set_seed(options.seed);
  if (options.temperature) params.set_temperature(*options.temperature);
  if (options.top_p) params.set_top_p(*options.top_p);
  return request;
}

/// Text as it comes; token ids, separated by blanks, for vocabularies that are not bytes.
class Printer {
 public:
  Printer(bool json, const GenerateOptions& options) : json_(json) {
    if (!json) std::fputs(options.prompt.c_str(), stdout);
  }

  void print(const v1::GenerateResponse& response) {
    if (!response.done()) {
      if (first_step_ < 0) first_step_ = response.weights_step();
      last_step_ = response.weights_step();
    }
    if (json_) return print_json_line(response);
    text_ = text_ || !response.text().empty();
    if (!response.text().empty()) {
      std::fputs(response.text().c_str(), stdout);
    } else if (!response.done() && !text_ && !maybe_text_) {
      fmt::print("{} ", response.token_id());
    }
    std::fflush(stdout);
  }

  void expect_text() { maybe_text_ = true; }
  void end() {
    if (json_) return;
    std::fputs("\n", stdout);
    if (first_step_ != last_step_)
      fmt::print(stderr,
                 "The job trained meanwhile: weights of step {} at first, of step {} at last\n",
                 first_step_, last_step_);
  }

 private:
  bool json_;
  bool text_ = false;
  std::int64_t first_step_ = -1, last_step_ = -1;  ///< of the weights
  bool maybe_text_ =
      false;  ///< a prompt of text: the model has bytes, a token may complete no character
};

ExitCode generate(Client& client, bool json, const GenerateOptions& options) {
  grpc::ClientContext context;
  const auto stream = client.generation().Generate(&context, make_request(options));
  const InterruptScope interrupt([&] { context.TryCancel(); });
  std::unique_ptr<Printer> printer;
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
    if (!printer) printer = std::make_unique<Printer>(json, options);
    if (!options.prompt.empty()) printer->expect_text();
    printer->print(response);
  }
  if (printer) printer->end();
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) return kInterrupted;
  if (!status.ok()) client.fail(status);
  return kOk;
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
  auto* prompt = command->add_option_group("prompt", "What to continue");
  prompt->add_option("--prompt", options->prompt, "Text, for models of bytes");
  prompt->add_option("--tokens", options->tokens, "Token ids, separated by commas")->delimiter(',');
  prompt->require_option(1);
  command->add_option("--max-tokens", options->max_tokens, "Default 256");
  command->add_option("--temperature", options->temperature,
                      "Default 1; 0 takes the likeliest token");
  command->add_option("--top-k", options->top_k, "Only among the k likeliest tokens; 0: all");
  command->add_option("--top-p", options->top_p,
                      "Only among the likeliest tokens that make up this probability");
  command->add_option("--seed", options->seed, "The same seed gives the same text");
  command->footer(
      "Tokenizers are not part of this version: models whose vocabulary is not the 256 bytes take "
      "and give "
      "token ids.\nExample: meshloom generate --job job-1 --prompt \"In the beginning\" "
      "--temperature 0.8");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return generate(client, context.json, *options);
    };
  });
}

}  // namespace meshloom::cli
