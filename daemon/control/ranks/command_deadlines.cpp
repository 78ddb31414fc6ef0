// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/command_deadlines.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "daemon/control/ranks/rank_command.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/train/files/model_source.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr double kLeastSeconds = 60;
constexpr double kBytesPerSecond = 10e6;
constexpr double kFlopsPerSecond = 100e6;  // of a rank
constexpr double kStateBytes = 16;         // of a parameter: weight, two moments, a copy in float32

/// Of all files below a folder; 0 if it is not there.
double bytes_below(const fs::path& folder) {
  double bytes = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code no_size;
    const auto size = entry->file_size(no_size);
    if (!no_size) bytes += static_cast<double>(size);
  }
  return bytes;
}

/// Tokens of all samples; `longest`: of a sample of a reference that does not say.
double tokens_of(const v1::LossBatch& batch, double longest) {
  const v1::DataReference& read = batch.reference();
  double tokens = static_cast<double>(read.samples()) *
                  (read.has_seq_len() ? static_cast<double>(read.seq_len()) : longest);
  for (const v1::Datum& datum : batch.data()) tokens += datum.tokens_size();
  return tokens;
}

}  // namespace

CommandDeadlines::RunSize CommandDeadlines::size_of(const v1::CreateRunCommand& command) {
  RunSize size;
  const v1::RunFolders& folders = command.folders();
  for (const auto* folder :
       {&folders.checkpoints(), &folders.resume_from(), &folders.model(), &folders.state()})
    if (!folder->empty()) size.source_bytes += bytes_below(*folder);
  const v1::ModelSource& source = command.config().model();
  const nn::ModelConfig model =
      train::load_declared_config(source, folders.data_dir(), folders.model()).model;
  const auto parameters = static_cast<double>(nn::parameter_count(model));
  if (!source.hf_folder().empty()) size.source_bytes += 4 * parameters;
  size.state_bytes = kStateBytes * parameters;
  const v1::TrainingConfig& training = command.config().training();
  size.longest = static_cast<double>(training.seq_len());
  size.token_flops = nn::flops_per_token(model, training.seq_len()) / 3;
  // A run that a client drives has no batches of its own.
  const auto samples = static_cast<double>(std::max<std::int64_t>(1, training.global_batch_size()));
  size.batch_flops = size.token_flops * size.longest * samples;
  return size;
}

double CommandDeadlines::loss_flops(const v1::LossCommand& command, const RunSize& size) {
  // Forward twice, if checkpointed.
  if (command.has_training()) return 4 * size.batch_flops;
  if (command.has_validation())
    return size.batch_flops * static_cast<double>(command.validation().count());
  return 4 * size.token_flops * tokens_of(command.batch(), size.longest);
}

double CommandDeadlines::seconds(const v1::RankCommand& command, const RunSize& size) {
  const double files = size.state_bytes / kBytesPerSecond;
  // A rank may have all of the samples.
  switch (command.verb_case()) {
    case v1::RankCommand::kCreateRun: return size.source_bytes / kBytesPerSecond + files;
    case v1::RankCommand::kLoss: return loss_flops(command.loss(), size) / kFlopsPerSecond;
    case v1::RankCommand::kScoreSample:
      return size.token_flops * tokens_of(command.score_sample().batch(), size.longest) /
             kFlopsPerSecond;
    case v1::RankCommand::kAdvanceSample:  // of one pass, which is progress
      return size.batch_flops / kFlopsPerSecond;
    default: return files;
  }
}

void CommandDeadlines::set(v1::RankCommand* command) {
  const std::string run = run_of(*command);
  if (run.empty() || command->deadline_ms() != 0) return;
  std::optional<RunSize> made;
  try {
    if (command->has_create_run()) made = size_of(command->create_run());
  } catch (const Error&) {
    return;  // a model that cannot be read: the command itself says why
  }
  const std::lock_guard lock(mutex_);
  if (made) runs_[run] = *made;
  const auto known = runs_.find(run);
  if (known == runs_.end()) return;
  command->set_deadline_ms(
      static_cast<std::int64_t>(1000 * (kLeastSeconds + seconds(*command, known->second))));
  if (command->has_delete_run()) runs_.erase(known);
}

}  // namespace meshloom::control
