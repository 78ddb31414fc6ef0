// SPDX-License-Identifier: Apache-2.0
// ByteTokenizer: every byte is the token of its value, whether the bytes are UTF-8 or not.
#pragma once

#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// It has no special tokens.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view bytes, bool with_template, WordCache& cache, Budget& budget,
              std::vector<TokenId>& out) const override;
  std::string decode(std::span<const TokenId> tokens, bool skip_special,
                     Budget& budget) const override;
  TextCuts cuts() const override { return {.anywhere = true}; }
  bool reads_any_bytes() const override { return true; }
  std::vector<std::uint32_t> token_bytes() const override {
    return std::vector<std::uint32_t>(256, 1);
  }
  TokenId end() const override { return 256; }
  std::optional<TokenId> find(std::string_view token) const override;
};

}  // namespace meshloom::text
