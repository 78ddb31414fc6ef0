// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/help/familiar_commands.h"

#include <fmt/format.h>

#include <cctype>
#include <sstream>

namespace meshloom::cli {
namespace {

bool has_word(const char* words, const std::string& wanted) {
  std::istringstream all(words);
  for (std::string word; all >> word;)
    if (word == wanted) return true;
  return false;
}

std::string plain(std::string word) {
  for (char& c : word)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

}  // namespace

// The words are those of transformers-cli, torchtune, axolotl, LLaMA-Factory, Megatron-LM, docker,
// slurm and kubectl.
const std::vector<FamiliarCommand>& familiar_commands() {
  static const std::vector<FamiliarCommand> all = {
      {"", "train fit finetune fine-tune pretrain sft launch submit sbatch start-job",
       "job submit FILE --follow"},
      {"", "sweep tune", "job submit FILE --sweep optimizer.lr=1e-4,3e-4"},
      {"", "sample infer inference predict complete chat prompt", "generate --job JOB"},
      {"", "eval test validate validation perplexity ppl benchmark", "evaluate --job JOB"},
      {"", "export convert save save-hf to-hf", "checkpoint export NAME"},
      {"", "download get-checkpoint pull", "checkpoint download NAME FOLDER"},
      {"", "checkpoints ckpt ckpts", "checkpoint list"},
      {"", "logs log tail", "job logs JOB"},
      {"", "metrics history", "job metrics JOB"},
      {"", "watch follow attach progress", "job watch JOB"},
      {"", "ps ls list jobs squeue queue", "job list"},
      {"", "cancel scancel kill abort", "job cancel JOB"},
      {"", "start serve server daemon boot", "up -n 2 --data-dir DIR"},
      {"", "stop quit exit", "down"},
      {"", "resume continue restart", "job resume JOB"},
      {"", "pause suspend", "job pause JOB"},
      {"", "edit set", "job edit JOB FIELD=VALUE"},
      {"", "plot curve curves visualize", "job plot JOB"},
      {"", "compare diff", "job compare JOB JOB"},
      {"", "models", "model list"},
      {"", "runs", "run list"},
      {"", "register import-model add-model push-model", "model create NAME FOLDER"},
      {"", "tokenize prepare preprocess", "data tokenize --tokenizer MODEL --out FILE.bin PATH"},
      {"", "train-tokenizer bpe", "data train-tokenizer --vocab N --out FOLDER PATH"},
      {"", "inspect", "data inspect PATH"},
      {"", "import", "data import UPLOAD PATH"},
      {"", "push put add-data", "upload FILES --data FOLDER/"},
      {"", "init new template example config", "job submit --example"},
      {"", "schema options keys", "fields"},
      {"", "search autotune", "plan search --model MODEL --ranks N"},
      {"", "estimate memory", "plan estimate --model MODEL"},
      {"", "info version top nodes sinfo workers", "status"},
      {"", "dump debug stacks", "worker dump"},
      {"", "man docs", "manual"},
      {"job", "run start create new train launch", "job submit FILE --follow"},
      {"job", "stop kill abort end", "job cancel JOB"},
      {"job", "status info describe get inspect", "job show JOB"},
      {"job", "ls ps all", "job list"},
      {"job", "rm remove del purge", "job delete JOB"},
      {"job", "tail log output", "job logs JOB"},
      {"job", "attach progress", "job watch JOB"},
      {"job", "continue restart", "job resume JOB"},
      {"job", "set update change", "job edit JOB FIELD=VALUE"},
      {"job", "curve chart", "job plot JOB"},
      {"job", "diff", "job compare JOB JOB"},
      {"job", "unhold retry", "job release JOB"},
      {"run", "start new open", "run create FILE"},
      {"run", "stop kill end", "run close RUN"},
      {"run", "ls all", "run list"},
      {"run", "rm remove", "run delete RUN"},
      {"run", "get status info", "run show RUN"},
      {"run", "step optimizer-step", "run optim-step RUN"},
      {"run", "backward train", "run forward-backward RUN --data PATH"},
      {"run", "generate", "run sample RUN"},
      {"checkpoint", "ls show all", "checkpoint list"},
      {"checkpoint", "get pull copy", "checkpoint download NAME FOLDER"},
      {"checkpoint", "rm remove", "checkpoint delete NAME"},
      {"checkpoint", "convert save to-hf", "checkpoint export NAME"},
      {"model", "add upload import push register new", "model create NAME FOLDER"},
      {"model", "ls all", "model list"},
      {"model", "rm remove", "model delete NAME"},
      {"model", "get info describe", "model show NAME"},
      {"data", "upload add push put", "upload FILES --data FOLDER/"},
      {"data", "encode prepare preprocess", "data tokenize --tokenizer MODEL --out FILE.bin PATH"},
      {"data", "show look info stats", "data inspect PATH"},
      {"data", "train learn bpe", "data train-tokenizer --vocab N --out FOLDER PATH"},
      {"plan", "autotune find", "plan search --model MODEL --ranks N"},
      {"plan", "memory cost", "plan estimate --model MODEL"},
  };
  return all;
}

std::string command_hint(const std::string& path, const std::string& word) {
  const std::string wanted = plain(word);
  for (const FamiliarCommand& known : familiar_commands())
    if (path == known.path && has_word(known.words, wanted))
      return fmt::format("here it is `meshloom {}`", known.command);
  return "";
}

}  // namespace meshloom::cli
