// SPDX-License-Identifier: Apache-2.0
// What people write by mistake, and the line that they get: each says what was seen and what to
// write instead. What only a daemon can know is in tests/e2e/wrong_requests.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/yaml_reader.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/usage_error.h"
#include "kernels/base/error.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string refusal_of(const std::string& line) {
  CommandContext context;
  CLI::App app("test", "meshloom");
  declare_commands(app, context);
  try {
    app.parse(line);
  } catch (const CLI::ParseError& error) {
    return usage_text(app, error);
  }
  return "";
}

TEST(Mistakes, OfTheCommandLine) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "a command is needed: status, "},
      {"frobnicate", "unknown command \"frobnicate\""},
      {"statsu", "unknown command \"statsu\"; did you mean status?"},
      {"jobs list", "unknown command \"jobs\"; did you mean job?"},
      {"job", "a command is needed: "},
      {"job sbumit a.yaml", "unknown command \"sbumit\"; did you mean submit?"},
      {"job submit a.yaml --folow", "unknown option --folow; did you mean --follow?"},
      {"job submit a.yaml --folow --nmae x", "unknown option --folow; did you mean --follow?"},
      {"job submit a.yaml --nmae=x", "unknown option --nmae; did you mean --name?"},
      {"job submit a.yaml --jsn", "unknown option --jsn; did you mean --json?"},
      {"job submit a.yaml b.yaml", "\"b.yaml\" is one argument too many"},
      {"job resume job-1 --steps -5", "--steps: is -5, expected a number above 0"},
      {"job resume job-1 --steps 0", "--steps: is 0, expected a number above 0"},
      {"job submit a.yaml --example", "--example excludes file"},
      {"job submit --example --set training.steps=5", "--example excludes --set"},
      {"plan estimate --model gpt2_124m --seq many", "--seq: is many, expected a number above 0"},
      {"plan estimate --model gpt2_124m --memory 2",
       "--memory: is 2, expected a number with its unit, such as 24GiB or 80GB"},
      {"plan estimate", "--model is required"},
      {"plan search --model gpt2_124m --rejected -1", "--rejected: is -1, expected 0 or more"},
      {"worker dump --entries -1", "--entries: is -1, expected 0 or more"},
      {"generate --job a --prompt x --samples 0", "--samples: Value 0 not in range 1 to 64"},
      {"checkpoint", "a command is needed: list, "},
  };
  for (const auto& [line, expected] : mistakes) {
    const std::string refusal = refusal_of(line);
    EXPECT_THAT(first_line(refusal), HasSubstr(expected)) << line;
    EXPECT_LT(first_line(refusal).size(), 300u) << line;
    EXPECT_THAT(refusal, HasSubstr("--help\" for what there is.")) << line;
  }
  EXPECT_THAT(refusal_of("job sbumit"), HasSubstr("Run \"meshloom job --help\""));
}

template <typename Message = v1::JobSpec>
std::string problem_of(const std::string& yaml) {
  Message message;
  try {
    base::read_yaml(yaml, "job.yaml", &message);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Mistakes, OfJobFiles) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"run:\n\ttraining: {steps: 3}\n",
       "job.yaml:2: begins with a tab; YAML is indented by spaces"},
      {"run:\n  training:\n  \tsteps: 3\n",
       "job.yaml:3: begins with a tab; YAML is indented by spaces"},
      {"run: {optimizer: {learning_rate: 1.0e-3}}", "here it is run.optimizer.lr"},
      {"run: {training: {lr: 1.0e-3}}", "here it is run.optimizer.lr"},
      {"run: {optimizer: {betas: [0.9, 0.95]}}", "run.optimizer.beta1 and run.optimizer.beta2"},
      {"run: {training: {batch_size: 8}}", "here it is run.training.global_batch_size, samples"},
      {"run: {training: {per_device_train_batch_size: 8}}",
       "here it is run.training.micro_batch_size"},
      {"run: {training: {gradient_accumulation_steps: 8}}",
       "here it is run.training.global_batch_size"},
      {"run: {training: {epochs: 3}}", "here it is run.training.steps"},
      {"run: {training: {num_train_epochs: 3}}", "here it is run.training.steps"},
      {"run: {training: {max_steps: 3}}", "here it is run.training.steps"},
      {"run: {steps: 3}", "here it is run.training.steps"},
      {"steps: 3", "here it is run.training.steps"},
      {"run: {training: {max_seq_length: 128}}", "here it is run.training.seq_len"},
      {"run: {training: {max_grad_norm: 1}}", "here it is run.training.max_norm"},
      {"run: {training: {warmup_steps: 10}}", "here it is run.lr_scheduler.warmup_steps"},
      {"run: {training: {warmup_ratio: 0.1}}", "run.lr_scheduler.warmup_steps, a number of steps"},
      {"run: {training: {fp16: true}}", "here it is run.plan.dtype: float32, bfloat16 or auto"},
      {"run: {bf16: true}", "here it is run.plan.dtype: float32, bfloat16 or auto"},
      {"run: {plan: {zero_stage: 3}}", "here it is run.plan.fully_shard: true"},
      {"run: {mesh: {tensor_parallel_size: 2}}", "here it is run.mesh.tp"},
      {"run: {tp: 2}", "here it is run.mesh.tp"},
      {"run: {mesh: {pp: 2}}", "not offered: there is no pipeline parallelism"},
      {"run: {gradient_checkpointing: true}", "here it is run.plan.activation_checkpoint"},
      {"run: {training: {save_steps: 10}}", "here it is run.checkpoint.interval"},
      {"run: {training: {early_stopping_patience: 3}}",
       "here it is run.training.early_stopping.patience"},
      {"run: {training: {eval-steps: 10}}", "here it is run.validation.interval"},
      {"run: {output_dir: out}", "below the daemon's --state-dir"},
      {"run: {model: {model_name_or_path: gpt2}}", "here it is run.model.hf_folder"},
      {"run: {data: {train_file: a.txt}}", "here it is run.data.path"},
      {"run: {training: {stepz: 3}}", "did you mean \"steps\"?"},
      {"run: {mesh: {qq: 3}}", "unknown key \"qq\" (valid here: dp, fsdp, cp, tp)"},
  };
  for (const auto& [yaml, expected] : mistakes)
    EXPECT_THAT(problem_of(yaml), HasSubstr(expected)) << yaml;
  EXPECT_THAT(problem_of("run: {mesh: {pp: 2}}"), Not(HasSubstr("did you mean")));
}

TEST(Mistakes, NamesOfOtherTrainersAreNotOfferedWhereThereIsNoJob) {
  EXPECT_THAT(problem_of<v1::DaemonConfig>("learning_rate: 3\n"), Not(HasSubstr("here it is")));
  EXPECT_THAT(problem_of<v1::DaemonConfig>("client_bytes: 3\n"),
              HasSubstr("here it is uploads.client_bytes"));
}

}  // namespace
}  // namespace meshloom::cli
