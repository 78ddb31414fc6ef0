// SPDX-License-Identifier: Apache-2.0
// The verbs that train: forward-backward, forward and optim-step; and skip, for one that is lost.
#include <memory>

#include "daemon/cli/runs/loss_options.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/runs/run_verb.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

struct LossVerbOptions {
  std::string run;
  LossOptions loss;
  bool train = false;  ///< of forward
};

struct OptimStepOptions {
  std::string run;
  v1::OptimStepParams params;
};

struct SkipOptions {
  std::string run;
  std::int64_t number = 0;
  std::string verb;
};

template <typename Request>
Request loss_request(Client& client, bool json, const LossVerbOptions& options) {
  v1::LossBatch batch = options.loss.batch();
  Request request;
  request.set_upload(upload_if_large(client, json, options.run, batch));
  if (request.upload().empty()) *request.mutable_batch() = std::move(batch);
  return request;
}

ExitCode forward_backward(Client& client, bool json, const LossVerbOptions& options) {
  return show_ended(json,
                    carry_out(client, json, options.run, &v1::RunService::Stub::ForwardBackward,
                              loss_request<v1::ForwardBackwardRequest>(client, json, options)));
}

ExitCode forward(Client& client, bool json, const LossVerbOptions& options) {
  auto request = loss_request<v1::ForwardRequest>(client, json, options);
  request.set_train(options.train);
  return show_ended(json, carry_out(client, json, options.run, &v1::RunService::Stub::Forward,
                                    std::move(request)));
}

ExitCode optim_step(Client& client, bool json, const OptimStepOptions& options) {
  v1::OptimStepRequest request;
  *request.mutable_params() = options.params;
  return show_ended(json, carry_out(client, json, options.run, &v1::RunService::Stub::OptimStep,
                                    std::move(request)));
}

ExitCode skip(Client& client, bool json, const SkipOptions& options) {
  v1::SkipRequest request;
  request.mutable_id()->set_seq(options.number);
  request.set_verb(options.verb);
  return show_ended(
      json, carry_out(client, json, options.run, &v1::RunService::Stub::Skip, std::move(request)));
}

void add_forward_backward(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand("forward-backward", "Add the gradients of samples");
  auto options = std::make_shared<LossVerbOptions>();
  add_target(*command, context, options->run);
  add_loss_options(*command, options->loss);
  command->footer(verb_footer(
      "One that fails spoils the gradients that are there: the next optim-step fails, and they are "
      "gone.\n"
      "Examples:\n"
      "  meshloom run forward-backward my-run --data text.txt --samples 8\n"
      "  meshloom run forward-backward my-run --batch rollouts.json --loss ppo "
      "--loss-config clip_high_threshold=1.3"));
  set_action(*command, context, options, &forward_backward);
}

void add_forward(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "forward", "Losses and log-probs of samples, without gradients; log-probs with --json");
  auto options = std::make_shared<LossVerbOptions>();
  add_target(*command, context, options->run);
  add_loss_options(*command, options->loss);
  command->add_flag("--train", options->train,
                    "With the dropout that the next forward-backward draws");
  command->footer(
      verb_footer("Example: meshloom run forward my-run --batch - --json < batch.json"));
  set_action(*command, context, options, &forward);
}

void add_optim_step(CLI::App& runs, CommandContext& context) {
  struct Value {
    const char *option, *text;
    void (v1::OptimStepParams::*set)(double);
  };
  constexpr Value kValues[] = {
      {"--lr", "Learning rate", &v1::OptimStepParams::set_lr},
      {"--beta1", "Decay of the first moment", &v1::OptimStepParams::set_beta1},
      {"--beta2", "Decay of the second moment", &v1::OptimStepParams::set_beta2},
      {"--eps", "Added to the root of the second moment", &v1::OptimStepParams::set_eps},
      {"--weight-decay", "Weight decay", &v1::OptimStepParams::set_weight_decay},
      {"--momentum", "Momentum of sgd", &v1::OptimStepParams::set_momentum},
      {"--grad-clip-norm", "Norm that the gradients are clipped to; 0: they are not clipped",
       &v1::OptimStepParams::set_grad_clip_norm},
  };
  auto* command = runs.add_subcommand(
      "optim-step", "Clip the gradients, update the weights and begin with new gradients");
  auto options = std::make_shared<OptimStepOptions>();
  add_target(*command, context, options->run);
  for (const Value& value : kValues)
    command
        ->add_option_function<double>(
            value.option,
            [options, set = value.set](double given) { (options->params.*set)(given); }, value.text)
        ->check(command_line::not_negative());
  command->footer(verb_footer(
      "A value that is left out is the run's; one that its kind of optimizer has no use for is "
      "refused.\n"
      "Example: meshloom run optim-step my-run --lr 1e-4 --beta2 0.95"));
  set_action(*command, context, options, &optim_step);
}

void add_skip(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "skip", "Use up the number of a verb that never arrived, which others wait for");
  auto options = std::make_shared<SkipOptions>();
  add_target(*command, context, options->run);
  command->add_option("number", options->number, "As operation show says of one that waits")
      ->required()
      ->check(command_line::positive());
  command
      ->add_option("--verb", options->verb,
                   "What it was to be, such as optim_step; left out, it counts as a "
                   "forward_backward that failed")
      ->check(CLI::IsMember({"forward_backward", "forward", "optim_step", "save_state",
                             "load_state", "save_weights", "get_parameters", "set_parameters"}));
  command->footer("Example: meshloom run skip my-run 7 --verb forward");
  set_action(*command, context, options, &skip);
}

}  // namespace

void add_run_training(CLI::App& runs, CommandContext& context) {
  add_forward_backward(runs, context);
  add_forward(runs, context);
  add_optim_step(runs, context);
  add_skip(runs, context);
}

}  // namespace meshloom::cli
