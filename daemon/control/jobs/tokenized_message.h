// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a run's text are, as the ranks are told.
#pragma once

#include "daemon/train/data/text_data.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Nothing where the run has no text that is tokenized.
inline void set_tokenized(const train::TokenizedText& text, v1::CreateRunCommand* create) {
  if (text.tokenizer.empty()) return;
  v1::TokenizedText& tokenized = *create->mutable_tokenized();
  tokenized.set_tokens(text.tokens.string());
  tokenized.set_validation_tokens(text.validation_tokens.string());
  tokenized.set_tokenizer(text.tokenizer);
  for (const auto& tokens : text.set_tokens) tokenized.add_set_tokens(tokens.string());
}

}  // namespace meshloom::control
