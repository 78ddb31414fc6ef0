// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/cli/interrupt.h"
#include "daemon/cli/sampling/chat_turns.h"
#include "daemon/cli/sampling/generate_command.h"
#include "daemon/cli/sampling/generate_printer.h"
#include "daemon/cli/sampling/sampling_options.h"
#include "daemon/text/stream_decoder.h"
#include "daemon/text/tokenizer_folder.h"

namespace meshloom::cli {
namespace {

struct GenerateOptions : SamplingOptions {
  std::string job, checkpoint, hf_folder, model;
  std::string tokenizer;  ///< a local folder
  bool chat = false;
  std::string system;  ///< of chat
};

v1::GenerateRequest make_request(const GenerateOptions& options,
                                 const std::vector<v1::Prompt>& prompts) {
  v1::GenerateRequest request;
  if (!options.job.empty()) request.set_job(options.job);
  if (!options.checkpoint.empty()) request.set_checkpoint(options.checkpoint);
  if (!options.hf_folder.empty()) request.set_hf_folder(options.hf_folder);
  if (!options.model.empty()) request.set_model(options.model);
  if (prompts.size() == 1 && !prompts[0].has_chat()) {
    request.set_prompt(prompts[0].prompt());
    *request.mutable_token_ids() = prompts[0].token_ids();
  } else {
    request.mutable_prompts()->Assign(prompts.begin(), prompts.end());
  }
  request.set_samples(options.samples);
  *request.mutable_params() = options.params();
  *request.mutable_stop() = options.stop();
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

/// Text here, token ids on the wire: puts prompts into tokens and makes the tokens that come text.
class LocalTokenizer {
 public:
  explicit LocalTokenizer(const std::string& folder)
      : tokenizer_(text::open_tokenizer(folder).tokenizer) {}

  /// The same prompts with their template's tokens in place of their text. What is drawn follows
  /// them, `samples` times each.
  std::vector<v1::Prompt> encode(const std::vector<v1::Prompt>& prompts, int samples) {
    std::vector<v1::Prompt> tokens(prompts);
    for (v1::Prompt& prompt : tokens) {
      if (!prompt.prompt().empty())
        for (const text::TokenId id : tokenizer_->encode(prompt.prompt(), true))
          prompt.add_token_ids(id);
      prompt.clear_prompt();
      text::StreamDecoder decoder(tokenizer_, true);
      const auto& ids = prompt.token_ids();
      decoder.follow({ids.data(), static_cast<std::size_t>(ids.size())});
      decoders_.insert(decoders_.end(), static_cast<std::size_t>(samples), decoder);
    }
    return tokens;
  }

  void add_text(v1::GenerateResponse& response) {
    auto& decoder = decoders_.at(static_cast<std::size_t>(response.index()));
    response.set_text(response.done()
                          ? decoder.finish()
                          : decoder.add(static_cast<text::TokenId>(response.token_id())));
  }

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<text::StreamDecoder> decoders_;  ///< by sequence
};

/// Draws and shows what continues the prompts. `answer`, unless it is null, gets the text of the
/// first sequence.
ExitCode draw(Client& client, bool json, const GenerateOptions& options,
              const std::vector<v1::Prompt>& prompts, std::string* answer = nullptr) {
  std::optional<LocalTokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer.emplace(options.tokenizer);
  const v1::GenerateRequest request =
      make_request(options, tokenizer ? tokenizer->encode(prompts, options.samples) : prompts);
  grpc::ClientContext context;
  client.introduce(context);
  const auto stream = client.generation().Generate(&context, request);
  const InterruptScope interrupt([&] { context.TryCancel(); });
  std::unique_ptr<GeneratePrinter> printer;
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
    if (!printer)
      printer = std::make_unique<GeneratePrinter>(json, texts_of(options, prompts),
                                                  options.prompts.empty() || options.chat);
    if (tokenizer) tokenizer->add_text(response);
    printer->print(response);
    if (answer != nullptr && response.index() == 0) *answer += response.text();
  }
  if (printer) printer->end();
  if (printer && !json && answer == nullptr) tell_seed(options);
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) return kInterrupted;
  if (!status.ok()) client.fail(status);
  return kOk;
}

ExitCode chat(Client& client, bool json, const GenerateOptions& options) {
  if (!options.prompts.tokens.empty())
    throw CliError(kUsage, "--tokens: a conversation is text; give --prompt, or nothing to talk");
  v1::Prompt turn;
  if (!options.prompts.empty()) {
    std::vector<v1::Prompt> turns;
    for (const v1::Prompt& prompt : read_prompts(options.prompts)) {
      *turn.mutable_chat() = first_turn(options.system, prompt.prompt());
      turns.push_back(turn);
    }
    return draw(client, json, options, turns);
  }
  if (options.samples > 1)
    throw CliError(kUsage, "--samples: a conversation of several turns has one answer to each");
  if (!json) tell_seed(options);
  return chat_by_turns(options.system, [&](const v1::Conversation& conversation) {
    *turn.mutable_chat() = conversation;
    std::optional<std::string> answer = "";
    if (draw(client, json, options, {turn}, &*answer) != kOk) answer.reset();
    return answer;
  });
}

ExitCode generate(Client& client, bool json, const GenerateOptions& options) {
  if (options.chat) return chat(client, json, options);
  return draw(client, json, options, read_prompts(options.prompts));
}

}  // namespace

void add_generate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("generate", "Continue a prompt with a model, token by token");
  auto options = std::make_shared<GenerateOptions>();
  auto* source = command->add_option_group("source", "Where the model comes from");
  source->add_option("--job", options->job,
                     "A job: as it is now where it runs, else its newest checkpoint or export");
  source->add_option("--checkpoint", options->checkpoint,
                     "checkpoints/JOB/step-N, as checkpoint list shows it");
  source->add_option("--hf-folder", options->hf_folder,
                     "A Hugging Face folder below the daemon's data dir");
  source->add_option("--model", options->model, "A model of the daemon, as model list shows it");
  source->require_option(1);
  add_sampling_options(*command, *options);
  // The daemon looks for stop strings in the text that it makes itself.
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "A local Hugging Face folder whose tokenizer makes prompts tokens, with its "
                   "template, and tokens text, instead of the model's own")
      ->excludes("--stop");
  auto* chat = command->add_flag(
      "--chat", options->chat,
      "Prompts are what a user says: the model's chat template is around them, and the answer ends "
      "with its turn. Without a prompt: a conversation, a line of standard input a turn");
  chat->excludes("--tokenizer");
  command->add_option("--system", options->system, "With --chat: the system's message before all")
      ->needs(chat);
  command->footer(
      "Models without bytes and without a tokenizer of their own take and give token ids; "
      "--tokenizer makes them text here.\nTemperature, top-k and top-p that are not given are "
      "those of the model's generation_config.json, where it has them.\nOf several sequences each "
      "is shown whole when it has "
      "ended, in their "
      "order; with --json each line is a token with the index of its sequence.\n"
      "Example: meshloom generate --job job-1 --prompt \"In the beginning\" --temperature 0.8");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return generate(client, context.json, *options);
    };
  });
}

}  // namespace meshloom::cli
