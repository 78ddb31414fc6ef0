// SPDX-License-Identifier: Apache-2.0
// PipelineTokenizer: added tokens, normaliser, pre-tokenizers, model, template and decoder, as a
// tokenizer.json puts them together.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "daemon/text/added_tokens.h"
#include "daemon/text/bpe.h"
#include "daemon/text/decoder.h"
#include "daemon/text/normalizer.h"
#include "daemon/text/pre_tokenizer.h"
#include "daemon/text/tokenizer.h"
#include "daemon/text/unigram.h"
#include "daemon/text/word_piece.h"

namespace meshloom::text {

using TokenModel = std::variant<Bpe, WordPiece, WordLevel, Unigram>;
const Vocabulary& vocabulary_of(const TokenModel& model);

class PipelineTokenizer : public Tokenizer {
 public:
  struct Parts {
    TokenModel model;
    std::vector<AddedToken> added_tokens = {};
    Normalizer normalizer = nullptr;  ///< null: none
    PreTokenizers pre_tokenizers = {};
    Template around = {};
    Decoder decoder = nullptr;  ///< null: tokens with blanks between them
    TextCuts cuts = {};         ///< that all of the parts above allow
  };

  /// Added tokens get the ids of with_ids.
  PipelineTokenizer(Parts parts, Budget& budget);

  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view bytes, bool with_template, WordCache& cache, Budget& budget,
              std::vector<TokenId>& out) const override;
  std::string decode(std::span<const TokenId> tokens, bool skip_special,
                     Budget& budget) const override;
  Template around() const override { return around_; }
  TextCuts cuts() const override { return cuts_; }
  /// Knows the bytes for byte-level BPE, and for BPE with bytes as SentencePiece has them: those of
  /// the text as the normalizer leaves it.
  std::vector<std::uint32_t> token_bytes() const override;
  TokenId end() const override { return all_tokens_.end(); }
  std::optional<TokenId> find(std::string_view token) const override {
    return all_tokens_.find(token);
  }
  const std::vector<AddedToken>& added_tokens() const { return added_.tokens(); }

 private:
  void encode_normalized(const Piece& text, WordCache& cache, Budget& budget,
                         std::vector<TokenId>& out) const;

  TokenModel model_;
  Normalizer normalizer_;
  PreTokenizers pre_tokenizers_;
  Template around_;
  Decoder decoder_;
  TextCuts cuts_;
  AddedTokens added_;
  Vocabulary all_tokens_;  ///< the model's and the added ones
  /// Added tokens whose normalised form is another text, which is what they are decoded as.
  std::unordered_map<TokenId, std::string> normal_forms_;
  std::unordered_set<TokenId> special_;
};

/// Makes a tokenizer from what a tokenizer.json holds; `path` is for errors. Truncation and padding
/// in the file are the business of callers who ask for them, which nobody here does. `special` are
/// texts that are special tokens, too, as far as the vocabulary has them. Throws InvalidArgument
/// for a file that is not as its format says, Unimplemented naming a part that is not known: no
/// part is approximated. ResourceExhausted (TOKENIZER_LIMIT) naming the part that is larger than
/// any of use, or takes more than `budget`, which was allowed the bytes of the file.
PipelineTokenizer read_tokenizer(const nlohmann::json& json, const std::string& path,
                                 const std::vector<std::string>& special, Budget& budget);
/// Makes a tokenizer with a budget for a file of so many bytes as the JSON has at most.
PipelineTokenizer read_tokenizer(const nlohmann::json& json, const std::string& path);
/// Makes a tokenizer from the file's text.
PipelineTokenizer read_tokenizer_json(std::string_view text, const std::string& path,
                                      const StopCheck& stop = {});

}  // namespace meshloom::text
