// SPDX-License-Identifier: Apache-2.0
// evaluate: the loss of a job, a checkpoint, a folder or a model on data, computed by the ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "daemon/cli/interrupt.h"
#include "daemon/cli/models/model_commands.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/output/terminal.h"
#include "daemon/cli/plans/plan_options.h"
#include "daemon/cli/plans/plan_text.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

struct EvaluateOptions {
  std::string job, checkpoint, hf_folder, model;
  std::string data, plan_file, dtype, device;
  std::optional<std::int64_t> seq_len, batch, batches;
  bool no_end = false, no_special_tokens = false, skips_lines = false;
  bool no_wait = false;
};

v1::EvaluateRequest make_request(const EvaluateOptions& options) {
  v1::EvaluateRequest request;
  if (!options.job.empty()) request.set_job(options.job);
  if (!options.checkpoint.empty()) request.set_checkpoint(options.checkpoint);
  if (!options.hf_folder.empty()) request.set_hf_folder(options.hf_folder);
  if (!options.model.empty()) request.set_model(options.model);
  if (!options.data.empty()) request.mutable_data()->set_path(options.data);
  if (options.no_end) request.mutable_data()->set_append_eos(false);
  if (options.no_special_tokens) request.mutable_data()->set_add_special_tokens(false);
  if (options.skips_lines) request.mutable_data()->set_skip_lines_without_text(true);
  if (!options.plan_file.empty()) {
    const v1::PlanFile plan = read_plan_file(options.plan_file, nullptr);
    *request.mutable_mesh() = plan.mesh();
    *request.mutable_plan() = plan.plan();
  }
  if (!options.dtype.empty()) request.mutable_plan()->set_dtype(options.dtype);
  request.set_device(options.device);
  if (options.seq_len) request.set_seq_len(*options.seq_len);
  if (options.batch) request.set_global_batch_size(*options.batch);
  if (options.batches) request.set_batches(*options.batches);
  request.set_no_wait(options.no_wait);
  return request;
}

/// A daemon that does not tell what it computed tells 0.
std::string tokens_text(std::int64_t computed, std::int64_t counted) {
  return computed > counted ? fmt::format("{} computed, {} count", computed, counted)
                            : std::to_string(counted);
}

void show_event(const v1::EvaluateResponse& event, bool terminal) {
  if (event.has_wait()) {
    fmt::print(stderr, "waits for the ranks: {}\n", event.wait().wait().reason());
  } else if (event.has_progress() && terminal) {
    const v1::EvaluateProgress& done = event.progress();
    fmt::print(stderr, "{}{} batches, {} tokens, loss {:.4f}{}", kClearLine, done.batches(),
               tokens_text(done.computed_tokens(), done.tokens()), done.loss(), bits_text(done));
    std::fflush(stderr);
  }
}

const char* type_of(const v1::EvaluateResponse& event) {
  if (event.has_wait()) return "wait";
  return event.has_progress() ? "progress" : "result";
}

ExitCode evaluate(Client& client, bool json, const EvaluateOptions& options) {
  grpc::ClientContext context;
  client.introduce(context);
  const auto stream = client.evaluation().Evaluate(&context, make_request(options));
  const InterruptScope interrupt([&] { context.TryCancel(); });
  const bool terminal = !json && is_terminal(STDERR_FILENO);
  v1::Evaluation result;
  for (v1::EvaluateResponse event; stream->Read(&event);) {
    if (event.has_result()) result = event.result();
    if (json)
      print_record(stream_record(type_of(event), event));
    else
      show_event(event, terminal);
  }
  if (terminal) fmt::print(stderr, "{}", kClearLine);
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) return kInterrupted;
  if (!status.ok()) client.fail(status);
  if (json) return kOk;
  print_line("model", result.source());
  print_line("loss", fmt::format("{:.6f}", result.loss()));
  print_line("perplexity", fmt::format("{:.4f}", result.perplexity()));
  if (result.has_bits_per_byte())
    print_line("bits/byte", fmt::format("{:.6f}", result.bits_per_byte()));
  print_line("tokens", fmt::format("{}, in {} batches of {} samples of {}",
                                   tokens_text(result.computed_tokens(), result.tokens()),
                                   result.batches(), result.global_batch_size(), result.seq_len()));
  print_line("speed", fmt::format("{:.0f} tokens/s, {}", result.tokens_per_second(),
                                  seconds_text(result.seconds())));
  print_line("mesh", fmt::format("{}, {}", mesh_text(result.mesh()), result.dtype()));
  print_line("device", result.device());
  return kOk;
}

}  // namespace

void add_evaluate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "evaluate", "Loss and perplexity of a job, a checkpoint, a folder or a model on data");
  auto options = std::make_shared<EvaluateOptions>();
  auto* source = command->add_option_group("source", "What is evaluated");
  source->add_option("--job", options->job, "Its newest checkpoint, else its export");
  source->add_option("--checkpoint", options->checkpoint, "As checkpoint list shows it");
  source->add_option("--hf-folder", options->hf_folder, "Below the daemon's --data-dir");
  source->add_option("--model", options->model, "A model of the daemon");
  source->require_option(1);
  command->add_option("--data", options->data,
                      "A file or folder below the daemon's --data-dir; default: what the job "
                      "validates on");
  command->add_flag("--no-document-end", options->no_end,
                    "No eos token after each document of text");
  command->add_flag("--no-special-tokens", options->no_special_tokens,
                    "None of the tokens around each document that the tokenizer adds to a text (a "
                    "bos, [CLS] and [SEP])");
  command->add_flag("--skip-lines-without-text", options->skips_lines,
                    "Of .jsonl files: lines that hold no text are left out, instead of refused");
  command
      ->add_option("--seq", options->seq_len,
                   "Tokens of a sample, the last of which may have fewer; default: the job's, else "
                   "the model's context")
      ->check(command_line::positive());
  command
      ->add_option("--batch", options->batch,
                   "Samples at once over all ranks, at most all that there are")
      ->check(command_line::positive());
  command
      ->add_option("--batches", options->batches,
                   "At most so many; default: all data, every token once")
      ->check(command_line::positive());
  command->add_option("--plan", options->plan_file,
                      "A YAML file with mesh and plan (configs/plans); default: the job's, else dp "
                      "over all ranks");
  command->add_option("--dtype", options->dtype,
                      "float32 or bfloat16; default: the job's, else auto");
  command->add_option("--device", options->device,
                      "auto, cpu, cuda or cuda:N; default: the job's where all ranks have it, else "
                      "auto");
  command->add_flag("--no-wait", options->no_wait,
                    "Fail if a job or a run has the ranks, instead of waiting for its turn");
  command->footer(
      "Examples:\n  meshloom evaluate --job job-1\n"
      "  meshloom evaluate --hf-folder gpt2 --data text.txt --seq 512");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return evaluate(client, context.json, *options);
    };
  });
}

}  // namespace meshloom::cli
