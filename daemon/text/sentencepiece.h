// SPDX-License-Identifier: Apache-2.0
// SentencePiece: the tokenizer of a tokenizer.model.
//
// Sources: Kudo, Richardson, "SentencePiece", 2018; Kudo, "Subword Regularization", 2018 (unigram);
// Sennrich, Haddow, Birch, 2016 (BPE).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// SentencePieceTemplate says which special tokens stand around a text.
struct SentencePieceTemplate {
  bool bos = false, eos = false;
};

/// Makes a tokenizer from the bytes of the file; `path` is for errors. It has the library's
/// tokens, but that control pieces which a text spells out ("</s>") are those tokens, as
/// transformers has it. Throws InvalidArgument for a file that is none, Unimplemented naming a part
/// that is not known (pieces that users define, unused ones, models of words or characters, blanks
/// as suffixes), ResourceExhausted (TOKENIZER_LIMIT) for kMostTokens pieces, and as Budget::spend.
/// `budget` was allowed the bytes of the file.
std::shared_ptr<const Tokenizer> read_sentencepiece(std::string_view bytes,
                                                    const SentencePieceTemplate& around,
                                                    const std::string& path, Budget& budget);
/// Makes a tokenizer with a budget for the file.
std::shared_ptr<const Tokenizer> read_sentencepiece(std::string_view bytes,
                                                    const SentencePieceTemplate& around,
                                                    const std::string& path);

}  // namespace meshloom::text
