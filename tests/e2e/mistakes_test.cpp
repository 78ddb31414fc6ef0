// SPDX-License-Identifier: Apache-2.0
// A hundred mistakes of newcomers in job files, in --set, in commands and in Python, each with what
// it must be answered by, made beside a job that trains and must keep its losses.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Mistake {
  const char* made;
  const char* answer;  ///< a part of it
};

// What stands below "run:", in flow style; a whole file where it begins with a line of its own.
constexpr Mistake kInJobFiles[] = {
    {"{model: {preset: gpt2}}", "did you mean gpt2_124m?"},
    {"{model: {preset: llama}}", "did you mean llama3_1b?"},
    {"{model: {hf_folder: no-such-folder}}", "no-such-folder"},
    {"{model: {name: nobody}}", "model \"nobody\" does not exist"},
    {"{model: {preset: byte_gpt_tiny, config: c.json}}", "run.model"},
    {"{data: {path: tetx.txt}}", "text.txt?"},
    {"{data: {path: /etc/passwd}}", "outside the data folder"},
    {"{data: {path: ../text.txt}}", "must not hold \"..\""},
    {"{data: {path: text.txt, format: parquet}}", "expected one of"},
    {"{data: {path: text.txt, format: llmc}}", "llm.c"},
    {"{data: {path: text.txt, tokenizer: no-tokenizer}}", "no-tokenizer"},
    {"{data: {path: text.txt, validation_split: 2}}", "run.data.validation_split"},
    {"{data: {path: text.txt, validation_split: 20%}}", "expected a finite number"},
    {"{data: {path: empty.txt}}", "empty"},
    {"{training: {steps: -5}}", "run.training.steps"},
    {"{training: {steps: many}}", "many, expected a whole number"},
    {"{training: {steps: 0}}", "run.training.steps"},
    {"{training: {steps: 1e3}}", "1e3, expected a whole number"},
    {"{training: {seq_len: 0}}", "run.training.seq_len"},
    {"{training: {seq_len: 1000000}}", "run.training.seq_len"},
    {"{training: {global_batch_size: 0}}", "run.training.global_batch_size"},
    {"{training: {micro_batch_size: 64, global_batch_size: 2}}", "micro_batch_size"},
    {"{training: {epochs: 3}}", "run.training.steps"},
    {"{training: {batch_size: 8}}", "global_batch_size"},
    {"{training: {gradient_accumulation_steps: 4}}", "global_batch_size"},
    {"{training: {max_norm: -1}}", "run.training.max_norm"},
    {"{training: {sede: 3}}", "did you mean \"seed\"?"},
    {"{optimizer: {learning_rate: 0.001}}", "run.optimizer.lr"},
    {"{optimizer: {lr: -1}}", "run.optimizer.lr"},
    {"{optimizer: {lr: 1,000}}", "run.optimizer"},
    {"{optimizer: {type: lion}}", "expected one of adamw, adam, sgd"},
    {"{optimizer: {betas: [0.9, 0.99]}}", "beta1 and run.optimizer.beta2"},
    {"{optimizer: {beta1: 1.5}}", "run.optimizer.beta1"},
    {"{optimizer: {weight_decay: nan}}", "expected a finite number"},
    {"{lr_scheduler: {decay_type: exponential}}", "constant, linear, cosine"},
    {"{lr_scheduler: {warmup_steps: -1}}", "run.lr_scheduler.warmup_steps"},
    {"{lr_scheduler: {warmup_ratio: 0.1}}", "run.lr_scheduler.warmup_steps"},
    {"{mesh: {tp: 3}}", "has 3 ranks, the daemon 2"},
    {"{mesh: {dp: 2, tp: 2}}", "has 4 ranks, the daemon 2"},
    {"{mesh: {pp: 2}}", "no pipeline parallelism"},
    {"{mesh: {tensor_parallel_size: 2}}", "run.mesh.tp"},
    {"{plan: {dtype: fp16}}", "must be float32, bfloat16 or auto"},
    {"{plan: {zero_stage: 3}}", "fully_shard"},
    {"{device: gpu}", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"{device: cuda}", "run.device: \"cuda\" needs a cuda device on the host of every rank"},
    {"{device: cuda:0}", "run.device: \"cuda:0\" needs device cuda:0 on the host of every rank"},
    {"{device: cuda:-1}", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"{training: {device: cuda}}", "run.device"},
    {"{checkpoint: {interval: -1}}", "run.checkpoint.interval"},
    {"{checkpoint: {resume_from: checkpoints/none/step-1}}", "job \"none\" does not exist"},
    {"{checkpoint: {save_total_limit: 2}}", "keep_latest_k"},
    {"{validation: {interval: -2}}", "run.validation.interval"},
    {"{validation: {eval_steps: 10}}", "run.validation.interval"},
    {"{sample: {prompt: \"\", params: {temperature: -1}}}", "temperature"},
    {"{export: {hf_folder: ../../out}}", "run.export.hf_folder"},
    {"{output_dir: out}", "--state-dir"},
    {"\nmodel: {preset: byte_gpt_tiny}\n", "run.model"},
    {"\nrun: {model: {preset: byte_gpt_tiny}\n", "a { is not closed by }"},
    {"\nrun:\n\tmodel: {preset: byte_gpt_tiny}\n", "begins with a tab"},
    {"\nrun: []\n", "expected a map of keys"},
    {"\nname: a job\nrun: {}\n", "name"},
};

constexpr Mistake kInSet[] = {
    {"training.step=5", "did you mean \"steps\"?"},
    {"steps=5", "run.training.steps"},
    {"training.steps", "FIELD=VALUE"},
    {"training.steps=", "training.steps"},
    {"training.steps=five", "five, expected a whole number"},
    {"training=5", "training"},
    {"lr=0.1", "optimizer.lr"},
    {"learning_rate=0.1", "optimizer.lr"},
    {"optimizer.lr=fast", "expected a finite number"},
    {"mesh.tp=8", "has 8 ranks, the daemon 2"},
    {"data.path=nothing.txt", "nothing.txt"},
    {"plan.dtype=int8", "must be float32, bfloat16 or auto"},
    {"device=CUDA", "run.device: must be auto, cpu, cuda or cuda:N"},
    {"gpu=1", "run.device"},
    {"model.preset=gpt3", "preset"},
    {"run..training.steps=5", "run..training"},
    {"batch_size=8", "global_batch_size"},
    {"checkpoint.keep_latest_k=-1", "checkpoint.keep_latest_k"},
};

// Arguments with blanks between them.
constexpr Mistake kInCommands[] = {
    {"train job.yaml", "job submit"},
    {"sample --job long", "generate"},
    {"export long", "checkpoint"},
    {"logs long", "job logs"},
    {"ls", "job list"},
    {"job sumbit a.yaml", "did you mean submit?"},
    {"job submit", "job file"},
    {"job submit no.yaml", "no.yaml"},
    {"job show nobody", "nobody"},
    {"job follow lnog", "did you mean long?"},
    {"job cancel", "job is required"},
    {"job resume long", "long"},
    {"job delete long", "cancel it before"},
    {"job edit long lr=0.1", "optimizer.lr"},
    {"job edit long model.preset=gpt2_124m", "model"},
    {"job edit long training.steps=1", "training.steps"},
    {"job edit long device=cpu", "device"},
    {"job plot", "give their names, or --label"},
    {"generate --prompt x", "--job"},
    {"generate --job nobody --prompt x", "nobody"},
    {"generate --job long --prompt x --temperature -1", "temperature"},
    {"generate --job long --prompt x --chat", "chat template"},
    {"evaluate --job long", "neither a checkpoint nor an export yet"},
    {"checkpoint download checkpoints/none here", "checkpoints/none"},
    {"model create m no-folder", "no-folder"},
    {"model create m --preset gpt5", "gpt5"},
    {"upload nothing.txt", "nothing.txt"},
    {"data inspect nothing.txt", "nothing.txt"},
    {"data train-tokenizer --vocab 10 --out t /proc/version", "vocab"},
    {"run create no.yaml", "no.yaml"},
    {"run close nobody --force", "nobody"},
    {"run create --set training.seed=3", "file is required"},
    {"status --jsn", "did you mean --json?"},
};

// Statements after `client = meshloom.Client()`.
constexpr Mistake kInPython[] = {
    {"client.submit('no.yaml')", "no.yaml"},
    {"client.submit({'run': {'training': {'stepz': 3}}})", "did you mean \"steps\"?"},
    {"client.submit({'run': {'optimizer': {'learning_rate': 1}}})", "run.optimizer.lr"},
    {"client.submit({'model': {'preset': 'byte_gpt_tiny'}})", "run"},
    {"client.job('nobody')", "nobody"},
    {"client.job('long').metrics()['los']", "loss"},
    {"client.generate(job='nobody', prompt='x')", "source"},
    {"client.generate('jobs/long', prompt='x', max_new_tokens=3)", "max_tokens"},
    {"client.evaluate('jobs/nobody')", "nobody"},
    {"client.import_upload('nothing.txt', 'a.txt')", "nothing.txt"},
    {"client.create_model('m', 'no-folder')", "no-folder"},
    {"client.submit('run: [\\n')", "not YAML"},
};

class MistakesE2e : public DaemonTest {
 protected:
  void expect_answer(const CommandResult& result, const Mistake& mistake) {
    const std::string text = result.output + result.errors;
    EXPECT_NE(result.exit_code, 0) << mistake.made << "\n" << text;
    expect_answer(text, mistake);
  }
  void expect_answer(const std::string& text, const Mistake& mistake) {
    EXPECT_THAT(text, HasSubstr(mistake.answer)) << mistake.made;
    // A page of words is no answer.
    EXPECT_LT(text.size(), 900u) << mistake.made << "\n" << text;
    EXPECT_EQ(text.find("internal"), std::string::npos) << mistake.made << "\n" << text;
    if (std::getenv("MESHLOOM_TEST_SHOW_ANSWERS"))
      fmt::print("{}\n    {}\n", mistake.made, text.substr(0, text.find('\n')));
  }
  /// The mistake's job file: what it leaves out is right.
  std::string job_file(const std::string& made) {
    if (made.starts_with('\n')) return write_text("mistake.yaml", made.substr(1));
    const auto lacks = [&](const char* key) { return made.find(key) == std::string::npos; };
    std::string text = "run:\n";
    if (lacks("{model:")) text += "  model: {preset: byte_gpt_tiny}\n";
    if (lacks("{data:")) text += "  data: {path: text.txt}\n";
    std::string own = "  " + made.substr(1, made.size() - 2) + "\n";
    const auto begin = own.find("training: {");
    if (begin == std::string::npos)
      text += "  training: {steps: 5, global_batch_size: 2, seq_len: 16}\n";
    else
      for (const auto& [key, value] : {std::pair("steps: ", "5, "), {"global_batch_size: ", "2, "}})
        if (lacks(key)) own.insert(begin + 11, std::string(key) + value);
    return write_text("mistake.yaml", text + own);
  }
};

Arguments words(const std::string& line) {
  Arguments words;
  std::istringstream text(line);
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

TEST_F(MistakesE2e, AHundredAreAnsweredAndAJobThatTrainsDoesNotNotice) {
  start();
  std::ofstream(data_ / "empty.txt");
  submit_endless("dp2", "undisturbed", 500);
  ASSERT_NO_FATAL_FAILURE(cancel("undisturbed"));
  submit_endless("dp2", "long", 3);
  for (const Mistake& mistake : kInJobFiles)
    expect_answer(client({"job", "submit", job_file(mistake.made)}), mistake);
  const std::string sound = job_file("{training: {steps: 5}}");
  for (const Mistake& mistake : kInSet)
    expect_answer(client({"job", "submit", sound, "--set", mistake.made}), mistake);
  for (const Mistake& mistake : kInCommands) expect_answer(client(words(mistake.made)), mistake);
  EXPECT_EQ(job("long")["state"], "running");
  ASSERT_NO_FATAL_FAILURE(cancel("long"));
  expect_same_losses("long", "undisturbed");
  shut_down();
}

constexpr const char* kTryAll = R"(
import json, sys, meshloom
client = meshloom.Client()
answers = []
for statement in json.load(open(sys.argv[1])):
    try:
        made = eval(statement)
        answers.append('no mistake: %r' % (made.result() if hasattr(made, 'result') else made))
    except Exception as error:
        answers.append('%s: %s' % (type(error).__name__, error))
print(json.dumps(answers))
)";

TEST_F(MistakesE2e, InPythonTheyAreAnsweredByExceptions) {
  const std::string python = "/usr/bin/python3";
  if (run_command({python, "-c", "import grpc, google.protobuf, numpy"}, 60s).exit_code != 0)
    GTEST_SKIP() << "no packages for Python (scripts/setup.sh --python)";
  const fs::path package = fs::path(test::program_folder()).parent_path() / "python";
  start();
  submit_endless("dp2", "long", 3);
  Json statements;
  for (const Mistake& mistake : kInPython) statements.push_back(mistake.made);
  const CommandResult result =
      run_command({"env", "-C", folder_.string(), "PYTHONPATH=" + package.string(),
                   "MESHLOOM_ADDRESS=" + address_, python, write_text("try.py", kTryAll),
                   write_text("statements.json", statements.dump())},
                  60s);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const Json answers = Json::parse(result.output);
  ASSERT_EQ(answers.size(), std::size(kInPython));
  for (std::size_t i = 0; i < answers.size(); ++i)
    expect_answer(answers[i].get<std::string>(), kInPython[i]);
  EXPECT_EQ(job("long")["state"], "running");
  cancel("long");
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
