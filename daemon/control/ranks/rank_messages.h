// SPDX-License-Identifier: Apache-2.0
// What the training engine takes and gives, as messages of the ranks.
#pragma once

#include "daemon/train/data/text_data.h"
#include "daemon/train/run/run.h"
#include "daemon/train/run/run_folders.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// What of a job is in its checkpoints. keep_latest_k and edited_config are left open.
inline v1::JobCheckpoint to_message(const train::JobProgress& progress) {
  v1::JobCheckpoint message;
  message.set_data_position(progress.data_position);
  message.set_tokens(progress.tokens);
  *message.mutable_validation() = progress.validation;
  return message;
}

inline train::JobProgress to_progress(const v1::JobCheckpoint& message) {
  train::JobProgress progress{message.data_position(), message.tokens(), message.validation(), {}};
  if (message.has_edited_config()) progress.edited_config = message.edited_config();
  return progress;
}

inline void set_folders(const train::RunFolders& folders, v1::RunFolders* message) {
  message->set_data_dir(folders.data_dir.string());
  message->set_model(folders.model.string());
  message->set_tokenizer(folders.tokenizer.string());
  message->set_state(folders.state.string());
  message->set_checkpoints(folders.checkpoints.string());
  message->set_resume_from(folders.resume_from.string());
  message->set_resume_older(folders.resume_older);
}

inline train::RunFolders to_folders(const v1::RunFolders& message) {
  return {.data_dir = message.data_dir(),
          .model = message.model(),
          .tokenizer = message.tokenizer(),
          .state = message.state(),
          .checkpoints = message.checkpoints(),
          .resume_from = message.resume_from(),
          .resume_older = message.resume_older()};
}

/// Where the tokens of a run's text are, or of a batch's; nothing where there is no text that is
/// tokenized.
template <typename Command>
void set_tokenized(const train::TokenizedText& text, Command* command) {
  if (text.tokenizer.empty()) return;
  v1::TokenizedText& tokenized = *command->mutable_tokenized();
  tokenized.set_tokens(text.tokens.string());
  tokenized.set_validation_tokens(text.validation_tokens.string());
  tokenized.set_tokenizer(text.tokenizer);
  for (const auto& tokens : text.set_tokens) tokenized.add_set_tokens(tokens.string());
  tokenized.mutable_token_bytes()->Add(text.token_bytes.begin(), text.token_bytes.end());
}

inline train::TokenizedText to_text(const v1::TokenizedText& text) {
  return {.tokens = text.tokens(),
          .validation_tokens = text.validation_tokens(),
          .tokenizer = text.tokenizer(),
          .set_tokens = {text.set_tokens().begin(), text.set_tokens().end()},
          .token_bytes = {text.token_bytes().begin(), text.token_bytes().end()}};
}

}  // namespace meshloom::control
