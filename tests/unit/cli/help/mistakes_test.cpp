// SPDX-License-Identifier: Apache-2.0
// What people write by mistake, and the line that they get: each says what was seen and what to
// write instead. What only a daemon can know is in tests/e2e/wrong_requests.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/yaml_reader.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/help/schema.h"
#include "daemon/cli/help/unknown_field.h"
#include "daemon/cli/jobs/field_setting.h"
#include "daemon/cli/plans/model_config_reader.h"
#include "daemon/command_line/usage_error.h"
#include "kernels/base/error.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"
#include "v1/run.pb.h"

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
    return command_line::usage_text(app, error, field_hint);
  }
  return "";
}

TEST(Mistakes, OfTheCommandLine) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "a command is needed: up, down, status, "},
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
      {"worker dump --entries -1", "--entries: is -1, expected a number above 0"},
      {"generate --job a --prompt x --samples 0",
       "--samples: is 0, expected a whole number, 1 to 64"},
      {"checkpoint", "a command is needed: list, "},
      {"run", "a command is needed: create, "},
      {"run forwrad r", "unknown command \"forwrad\"; did you mean forward?"},
      {"run heartbeat r", "one of --token-file, --token and MESHLOOM_RUN_TOKEN is required"},
      {"run load-state r --token t", "state is required"},
      {"run delete-state --token t", "name is required"},
      {"run skip r --token t", "number is required"},
      {"run skip r 0 --token t", "number: is 0, expected a number above 0"},
      {"run skip r 3 --token t --verb optimstep", "or set_parameters; did you mean optim_step?"},
      {"run get-parameters r --token t", "names is required"},
      {"run set-parameters r --token t", "file is required"},
      {"run forward-backward r --token t", "one of --data, --batch is needed"},
      {"run forward-backward r --token t --data a --train", "unknown option --train"},
      {"run forward r --token t --data a --tarin", "unknown option --tarin; did you mean --train?"},
      {"run forward r --token t --batch b --first 2", "--first requires --data"},
      {"run optim-step r --token t --beta2 -1", "--beta2: is -1, expected 0 or more"},
      {"run optim-step r --token t --betas 0.9", "did you mean --beta"},
      {"run save-state r s --token t --ttl -1", "--ttl: is -1, expected 0 or more"},
      {"upload", "files to send are needed, or a command: list, abort"},
      {"upload a.txt --overwrite", "--overwrite requires --data"},
      {"data import uploads/upload-1", "path is required"},
      {"job edit long --steps 200",
       "unknown option --steps; a job's field is written training.steps=200"},
      {"job edit long --steps=200", "a job's field is written training.steps=200"},
      {"job edit long --learning-rate", "a job's field is written optimizer.lr=VALUE"},
      {"job submit a.yaml --steps 200", "a job's field is written --set training.steps=200"},
      {"job show long --steps 200", "unknown option --steps"},
      {"shutdown --wait -1", "--wait: is -1, expected 0 or more"},
      {"drain --wait -1", "--wait: is -1, expected 0 or more"},
      {"status --wait -1", "--wait: is -1, expected 0 or more"},
  };
  for (const auto& [line, expected] : mistakes) {
    const std::string refusal = refusal_of(line);
    EXPECT_THAT(first_line(refusal), HasSubstr(expected)) << line;
    EXPECT_LT(first_line(refusal).size(), 300u) << line;
    EXPECT_THAT(refusal, HasSubstr("--help\" for what there is.")) << line;
  }
  EXPECT_THAT(refusal_of("job sbumit"), HasSubstr("Run \"meshloom job --help\""));
}

TEST(Mistakes, OfValues) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"generate --job a --prompt x --max-tokens abc",
       "--max-tokens: is abc, expected a whole number"},
      {"generate --job a --prompt x --max-tokens 99999999999",
       "--max-tokens: is 99999999999, expected a smaller whole number"},
      {"generate --job a --prompt x --temperature hot", "--temperature: is hot, expected a number"},
      {"generate --job a --prompt x --samples 99",
       "--samples: is 99, expected a whole number, 1 to 64"},
      {"generate --job a --prompt x --stop-token 1 --stop-token two",
       "--stop-token: is two, expected a whole number"},
      {"generate --prompt x --job", "--job needs a value"},
      {"generate --job --prompt x", "--job needs a value, and --prompt is an option"},
      {"generate --job a --prompt x --samples", "--samples needs a value: a whole number, 1 to 64"},
      {"generate --job a --job b --prompt x", "--job: given 2 times, expected once"},
      {"generate --prompt x", "one of --job, --checkpoint, "},
      {"generate --job a --model b --prompt x",
       "--job and --model exclude each other: give one of them"},
      {"job show a --json=abc", "--json: is abc, expected no value, true or false"},
      {"status --color foo", "--color: is foo, expected auto, always or never"},
      {"status --color alwyas", "expected auto, always or never; did you mean always?"},
      {"completion bahs", "shell: is bahs, expected bash, zsh or fish; did you mean bash?"},
      {"plan attention --ranks 99999", "--ranks: is 99999, expected a whole number, 1 to 4096"},
      {"plan estimate --model gpt2_124m --memory 2XB",
       "--memory: is 2XB, expected a number with its unit, such as 24GiB or 80GB"},
  };
  for (const auto& [line, expected] : mistakes)
    EXPECT_THAT(first_line(refusal_of(line)), HasSubstr(expected)) << line;
}

/// What a call throws.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const CliError& error) {
    return error.what();
  }
  return "";
}

TEST(Mistakes, OfNamesAreAnsweredByNearOnesAlone) {
  EXPECT_THAT(error_of([] { read_model_config("gpt2_124"); }),
              HasSubstr("--model gpt2_124: is neither a preset nor a file that is here; did you "
                        "mean gpt2_124m?"));
  const std::string far = error_of([] { find_schema("blah"); });
  EXPECT_THAT(far, HasSubstr("unknown field \"blah\" (valid here: "));
  EXPECT_THAT(error_of([] { find_schema("plam"); }), HasSubstr("did you mean \"plan\"?"));
  EXPECT_THAT(error_of([] { find_schema("learning_rate"); }),
              HasSubstr("here it is run.optimizer.lr"));
  EXPECT_THAT(error_of([] { parse_setting("batch_size=8"); }),
              HasSubstr("here it is run.training.global_batch_size"));
  EXPECT_THAT(first_line(refusal_of("job show a --greedy")), Not(HasSubstr("did you mean")));
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
      {"run: {training: {num_workers: 3}}", "not needed: batches are made ahead"},
      {"run: {world_size: 2}", "the ranks are those of the daemon"},
      {"run: {n_layer: 2}", "here it is run.model.config"},
      {"run: {run_name: a}", "here it is name, a key of the whole file"},
      {"run: {report_to: wandb}", "metrics.jsonl has every step"},
      {"run: {mesh: {qq: 3}}", "unknown key \"qq\" (valid here: dp, fsdp, cp, tp)"},
  };
  for (const auto& [yaml, expected] : mistakes)
    EXPECT_THAT(problem_of(yaml), HasSubstr(expected)) << yaml;
  EXPECT_THAT(problem_of("run: {mesh: {pp: 2}}"), Not(HasSubstr("did you mean")));
}

// A run that is driven step by step has the sections of a job's run, but for those of jobs alone.
TEST(Mistakes, OfRunFiles) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"config: {optimizer: {betas: [0.9, 0.95]}}",
       "here it is config.optimizer.beta1 and config.optimizer.beta2"},
      {"config: {lr: 1.0e-3}", "here it is config.optimizer.lr"},
      {"config: {training: {batch_size: 8}}",
       "only a job has it, as run.training.global_batch_size, samples"},
      {"config: {training: {epochs: 8}}", "only a job has it, as run.training.steps"},
      {"config: {data_path: a.txt}", "only a job has it, as run.data.path"},
      {"config: {save_steps: 3}", "only a job has it, as run.checkpoint.interval"},
      {"config: {run_name: a}", "here it is name, a key of the whole file"},
      {"config: {tags: a}", "only a job has it, as labels"},
      {"config: {world_size: 2}", "the ranks are those of the daemon"},
  };
  for (const auto& [yaml, expected] : mistakes)
    EXPECT_THAT(problem_of<v1::RunSpec>(yaml), HasSubstr(expected)) << yaml;
  EXPECT_THAT(problem_of<v1::RunSpec>("config: {warmup_steps: 3}"), Not(HasSubstr("here it is")));
}

TEST(Mistakes, NamesOfOtherTrainersAreNotOfferedWhereThereIsNoJob) {
  EXPECT_THAT(problem_of<v1::DaemonConfig>("learning_rate: 3\n"), Not(HasSubstr("here it is")));
  EXPECT_THAT(problem_of<v1::DaemonConfig>("client_bytes: 3\n"),
              HasSubstr("here it is uploads.client_bytes"));
}

}  // namespace
}  // namespace meshloom::cli
