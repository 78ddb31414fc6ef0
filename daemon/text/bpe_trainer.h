// SPDX-License-Identifier: Apache-2.0
// train_bpe: the merges of a byte-level BPE, learnt from counted words.
//
// Every word begins as its bytes. The pair of neighbouring tokens that is there most often becomes
// a token, everywhere, until there are as many tokens as wanted. Pairs that are there equally often
// are taken by the ids of their tokens, lowest first, so that the merges depend on nothing but the
// counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/text/vocabulary.h"
#include "daemon/text/word_counts.h"

namespace meshloom::text {

struct BpeTraining {
  std::int64_t vocab_size = 0;            ///< tokens in all
  std::vector<std::string> special = {};  ///< tokens that no merge makes; ids from 0 on
  std::int64_t min_frequency = 2;         ///< of a pair that is merged
};

struct TrainedBpe {
  /// By id: the special ones, the 256 bytes in the order of GPT-2's alphabet, in which they and
  /// what follows is spelled, and what the merges make. Fewer than wanted where no pair is left.
  std::vector<std::string> tokens;
  std::vector<std::pair<TokenId, TokenId>> merges;  ///< first to last
  std::int64_t text_tokens = 0;                     ///< tokens that the words are made of
};

/// It is called with the tokens so far now and then; what it throws ends the training.
using TrainingProgress = std::function<void(std::int64_t tokens)>;

/// Throws InvalidArgument for a vocab_size that has no room for the bytes and the special tokens,
/// or is more than a vocabulary may have, and for special tokens that are empty, no UTF-8, longer
/// than 256 bytes, given twice, or a byte of the alphabet.
void check_training(const BpeTraining& training);

/// Trains on words of at most kMostPartBytes / 2 bytes each. Throws as check_training.
TrainedBpe train_bpe(const std::vector<CountedWord>& words, const BpeTraining& training,
                     const TrainingProgress& progress = {});

}  // namespace meshloom::text
