// SPDX-License-Identifier: Apache-2.0
// ChatInspection: conversations, counted as a job would take them, and the first one in parts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/text/tokenizer.h"
#include "daemon/train/data/chat_samples.h"
#include "v1/data_service.pb.h"

namespace meshloom::control {

class ChatInspection {
 public:
  /// `seq_len`: tokens of a sample.
  explicit ChatInspection(std::int64_t seq_len);

  /// The next token, with the bits of text/learned_tokens.h.
  void add(text::TokenId token);
  void add(const std::vector<text::TokenId>& tokens) {
    for (const text::TokenId token : tokens) add(token);
  }

  /// Once, behind the last token: samples, what seq_len cuts and leaves out, and the first
  /// conversation as it is kept, in text, or as numbers where there is no tokenizer. Throws as
  /// text::Budget::spend.
  void tell(const std::shared_ptr<const text::Tokenizer>& tokenizer, const text::StopCheck& alive,
            v1::DataInspection* message);

 private:
  const std::int64_t seq_len_;
  train::ChatScan scan_;
  std::int64_t position_ = 0;
  std::vector<text::TokenId> first_;  ///< of the first conversation, as many as a sample holds
  std::int64_t conversations_ = 0;
};

}  // namespace meshloom::control
