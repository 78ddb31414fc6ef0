// SPDX-License-Identifier: Apache-2.0
// Dataset: a range of a token stream cut into samples for next-token prediction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/train/data/chat_samples.h"
#include "daemon/train/data/masked_lm.h"
#include "daemon/train/data/token_bytes.h"
#include "daemon/train/files/token_stream.h"

namespace meshloom::train {

/// Labels with this value are not counted.
inline constexpr std::int64_t kIgnoredLabel = -100;

struct DatasetOptions {
  std::int64_t seq_len = 0;     ///< T, at least 1
  std::int64_t vocab_size = 0;  ///< tokens at or above it are an error
  /// True: sample i is tokens [i T, i T + T] of the stream, whatever documents they belong to.
  /// False: samples start at a document; what is longer than T + 1 goes on in the next sample, what
  /// is shorter is padded with token 0 and ignored labels. Documents of one token have nothing to
  /// predict and are left out.
  bool pack_documents = true;
  /// Number documents inside a sample, and ignore labels that are the first token of another
  /// document. Of conversations, which are packed whole, no label is.
  bool document_mask = false;
  /// Positions begin anew at each document of a sample. With document_mask alone.
  bool reset_positions = false;
  /// If true, what is left behind the last whole sample of a packed range is a sample, too, padded
  /// as a short document is; with `masked`, also the last token of the range or document, which has
  /// no token behind it. For losses that are to be of all data; what is trained on has whole
  /// windows.
  bool keep_rest = false;
  /// A token that ends its document. Files of text end one in any case.
  std::optional<std::int64_t> document_end = std::nullopt;
  /// This is for models that see both sides: a sample is its first T tokens, and its labels are
  /// those same tokens, which BatchLoader then hides some of.
  std::optional<MaskedLmOptions> masked = std::nullopt;
  TokenBytes bytes = {};  ///< of text, that labels stand for
};

/// A range says where one of the two halves of a split lies, in positions of the stream.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Returns the first document or conversation that begins at `position` or later (the stream's end
/// if there is none).
std::int64_t next_document_start(const TokenStream&, const DatasetOptions&, std::int64_t position);

class Dataset {
 public:
  /// With pack_documents off the range is searched once for its documents, and in any case for
  /// conversations (ChatSamples). The stream outlives nothing: it is shared.
  Dataset(std::shared_ptr<const TokenStream> stream, TokenRange range,
          const DatasetOptions& options);

  /// Returns the same range in whole samples: as it would be without keep_rest.
  Dataset without_rest() const;

  /// Returns how many samples there are; 0 if the range is shorter than one, or with keep_rest has
  /// nothing to predict.
  std::int64_t size() const { return size_; }
  /// Returns how many tokens the range has.
  std::int64_t tokens() const { return range_.size(); }
  const DatasetOptions& options() const { return options_; }
  /// Returns null if the stream holds no conversations.
  const ChatSamples* chat() const { return chat_.get(); }

  /// Row is one row of a batch: inputs and labels [T] (labels already shifted: labels[s] is the
  /// token after inputs[s], the same ones with `masked`), and documents [T], the number of the
  /// position's document inside the sample, padding one of its own (may be empty: not wanted).
  struct Row {
    std::span<std::int64_t> inputs, labels, documents;
  };
  struct RowCounts {
    std::int64_t labels = 0;  ///< that count
    std::int64_t inputs = 0;  ///< that are no padding, which is behind them
  };
  /// Fills a row. Throws InvalidArgument naming file and position where a token is not below
  /// vocab_size.
  RowCounts read(std::int64_t sample, const Row& row) const;

 private:
  RowCounts read_chat(std::int64_t sample, const Row& row) const;
  /// Checks that `tokens`, which stand at `begin` and later, are in the vocabulary.
  void check_vocabulary(std::int64_t begin, std::span<const std::int64_t> tokens) const;
  /// Returns how many tokens belong to a sample behind its inputs: the last one's label.
  std::int64_t tokens_behind() const { return options_.masked && options_.keep_rest ? 0 : 1; }
  std::int64_t packed_size() const;
  TokenRange sample_range(std::int64_t sample) const;
  std::int64_t mask_documents(TokenRange range, std::span<const std::int64_t> tokens,
                              const Row& row) const;

  std::shared_ptr<const TokenStream> stream_;
  TokenRange range_;
  DatasetOptions options_;
  std::int64_t size_ = 0;
  std::shared_ptr<const ChatSamples> chat_;
  /// Unpacked only: documents with at least two tokens, and how many samples come before each.
  std::vector<TokenRange> documents_;
  std::vector<std::int64_t> samples_before_;
};

}  // namespace meshloom::train
