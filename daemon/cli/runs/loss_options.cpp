// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/loss_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "daemon/base/enum_names.h"
#include "daemon/cli/help/unknown_field.h"
#include "daemon/cli/key_value.h"
#include "daemon/cli/runs/message_file.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

/// A refused forward-backward spoils the gradients that are there, so that the names that a line
/// can have wrong are looked at before the daemon does.
void set_loss_value(const std::string& text, google::protobuf::Map<std::string, double>* config) {
  const auto [key, number] = split_key_value(text);
  const std::vector<std::string> keys = {"beta", "clip_high_threshold", "clip_low_threshold"};
  if (std::find(keys.begin(), keys.end(), key) == keys.end())
    throw unknown_field("--loss-config " + text, key, keys);
  double value = 0;
  const char* end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value))
    throw CliError(kUsage,
                   fmt::format("--loss-config {}: \"{}\" is not a finite number", text, number));
  (*config)[key] = value;
}

void add_reference_options(CLI::App& command, CLI::Option* data, LossOptions& options) {
  command.add_option("--samples", options.samples, "How many, of --data; default 1")
      ->check(command_line::positive())
      ->needs(data);
  command.add_option("--first", options.first_sample, "The first of them in its epoch; default 0")
      ->check(command_line::not_negative())
      ->needs(data);
  command.add_option("--epoch", options.epoch, "Whose order numbers them; default 0")
      ->check(command_line::not_negative())
      ->needs(data);
  command
      .add_option("--seq", options.seq_len,
                  "Tokens of a sample; default: as long as the run's longest datum")
      ->check(command_line::positive())
      ->needs(data);
  command
      .add_flag("--document-mask", options.document_mask,
                "Attention and loss stay inside a document")
      ->needs(data);
}

}  // namespace

v1::LossBatch LossOptions::batch() const {
  v1::LossBatch batch;
  if (batch_file.empty()) {
    v1::DataReference& reference = *batch.mutable_reference();
    reference.mutable_data()->set_path(data);
    reference.mutable_data()->set_document_mask(document_mask);
    reference.set_samples(samples);
    reference.set_first_sample(first_sample);
    reference.set_epoch(epoch);
    if (seq_len) reference.set_seq_len(*seq_len);
  } else {
    read_message_file(batch_file, &batch);
  }
  if (batch.data().empty() && !batch.has_reference())
    throw CliError(kUsage, fmt::format("--batch {}: has neither data nor a reference", batch_file));
  if (!loss.empty()) batch.set_loss(loss);
  if (batch.loss().empty()) batch.set_loss("cross_entropy");
  for (const std::string& text : loss_config) set_loss_value(text, batch.mutable_loss_config());
  if (const auto* value = base::find_enum_value(*v1::LossReduction_descriptor(), reduction))
    batch.set_reduction(static_cast<v1::LossReduction>(value->number()));
  if (tokens) batch.set_tokens(*tokens);
  if (micro_batch_size) batch.set_micro_batch_size(*micro_batch_size);
  return batch;
}

void add_loss_options(CLI::App& command, LossOptions& options) {
  auto* source = command.add_option_group("source", "What the loss is of");
  auto* data = source->add_option(
      "--data", options.data,
      "A file or a folder below the daemon's data dir, which the ranks read; for cross_entropy");
  source->add_option("--batch", options.batch_file,
                     "A file here with tokens, targets and what the loss needs: a LossBatch of "
                     "proto/v1/step.proto in JSON; - reads standard input");
  source->require_option(1);
  add_reference_options(command, data, options);
  command
      .add_option("--loss", options.loss,
                  "cross_entropy (the default), importance_sampling, ppo, cispo, dro or gspo")
      ->check(
          CLI::IsMember({"cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"}));
  command
      .add_option("--loss-config", options.loss_config,
                  "KEY=VALUE: clip_low_threshold, clip_high_threshold, or beta of dro; several "
                  "times")
      ->allow_extra_args(false);
  command
      .add_option("--reduction", options.reduction,
                  "sum (the default) or token_mean: gradients divided by the targets of the step")
      ->check(CLI::IsMember(base::enum_choices(*v1::LossReduction_descriptor())));
  command
      .add_option("--tokens", options.tokens,
                  "With token_mean: the targets of the whole step, to divide by at once; 0: "
                  "they are counted")
      ->check(command_line::not_negative());
  command
      .add_option("--micro-batch", options.micro_batch_size,
                  "Samples computed at once on a rank; default: as the run was made")
      ->check(command_line::positive());
}

}  // namespace meshloom::cli
