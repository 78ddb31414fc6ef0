// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/dataset.h"

#include <algorithm>

#include "daemon/text/learned_tokens.h"
#include "daemon/train/data/token_ids.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::train {
namespace {

constexpr std::int64_t kScanTokens = 1 << 16;

/// Calls visit(position) in ascending order for every position in (range.begin, range.end] where a
/// document begins, until it returns false.
template <typename Visit>
void for_each_document_start(const TokenStream& stream, const DatasetOptions& options,
                             TokenRange range, Visit&& visit) {
  static const std::vector<std::int64_t> kNone;
  const auto& files = stream.format() == TokenFormat::kText ? stream.file_starts() : kNone;
  auto file = std::upper_bound(files.begin(), files.end(), range.begin);
  if (!options.document_end) {
    for (; file != files.end() && *file <= range.end; ++file)
      if (!visit(*file)) return;
    return;
  }
  std::vector<std::int64_t> tokens;
  for (std::int64_t at = range.begin; at < range.end; at += kScanTokens) {
    tokens.resize(static_cast<std::size_t>(std::min(kScanTokens, range.end - at)));
    stream.read(at, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t next = at + static_cast<std::int64_t>(i) + 1;
      const bool starts_file = file != files.end() && *file == next;
      if (starts_file) ++file;
      if ((starts_file || tokens[i] == *options.document_end) && !visit(next)) return;
    }
  }
}

}  // namespace

std::int64_t next_document_start(const TokenStream& stream, const DatasetOptions& options,
                                 std::int64_t position) {
  if (position <= 0) return 0;
  if (stream.is_chat()) return next_chat_begin(stream, position);
  std::int64_t found = stream.size();
  for_each_document_start(stream, options, {position - 1, stream.size()}, [&](std::int64_t start) {
    found = start;
    return false;
  });
  return found;
}

Dataset::Dataset(std::shared_ptr<const TokenStream> stream, TokenRange range,
                 const DatasetOptions& options)
    : stream_(std::move(stream)), range_(range), options_(options) {
  check(options_.seq_len >= 1, "data: seq_len must be at least 1, got {}", options_.seq_len);
  check_internal(range_.begin >= 0 && range_.begin <= range_.end && range_.end <= stream_->size(),
                 "data: range [{}, {}) is outside the stream of {} tokens", range_.begin,
                 range_.end, stream_->size());
  if (stream_->is_chat()) {
    chat_ = std::make_shared<const ChatSamples>(*stream_, range_.begin, range_.end,
                                                options_.seq_len, options_.pack_documents);
    size_ = chat_->size();
    return;
  }
  if (options_.pack_documents) {
    size_ = packed_size();
    return;
  }
  std::int64_t begin = range_.begin;
  const auto close = [&](std::int64_t end) {
    if (const std::int64_t inputs = end - begin - tokens_behind(); inputs >= 1) {
      documents_.push_back({begin, end});
      samples_before_.push_back(size_);
      size_ += divide_up(inputs, options_.seq_len);
    }
    begin = end;
    return true;
  };
  for_each_document_start(*stream_, options_, range_, close);
  close(range_.end);
}

Dataset Dataset::without_rest() const {
  DatasetOptions options = options_;
  options.keep_rest = false;
  if (!chat_) return Dataset(stream_, range_, options);
  Dataset same = *this;  // conversations are whole samples in any case
  same.options_ = options;
  return same;
}

std::int64_t Dataset::packed_size() const {
  const std::int64_t inputs = std::max<std::int64_t>(0, range_.size() - tokens_behind());
  return options_.keep_rest ? divide_up(inputs, options_.seq_len) : inputs / options_.seq_len;
}

TokenRange Dataset::sample_range(std::int64_t sample) const {
  const std::int64_t step = options_.seq_len;
  const std::int64_t length = step + tokens_behind();
  if (options_.pack_documents) {
    const std::int64_t begin = range_.begin + sample * step;
    return {begin, std::min(begin + length, range_.end)};
  }
  const auto after = std::upper_bound(samples_before_.begin(), samples_before_.end(), sample);
  const auto index = static_cast<std::size_t>(after - samples_before_.begin()) - 1;
  const TokenRange document = documents_[index];
  const std::int64_t begin = document.begin + (sample - samples_before_[index]) * step;
  return {begin, std::min(begin + length, document.end)};
}

std::int64_t Dataset::mask_documents(TokenRange range, std::span<const std::int64_t> tokens,
                                     const Row& row) const {
  const bool is_text = stream_->format() == TokenFormat::kText;
  const std::vector<std::int64_t>& file_starts = stream_->file_starts();
  std::int64_t document = 0;
  std::int64_t ignored = 0;
  const auto length = static_cast<std::size_t>(range.size() - tokens_behind());
  for (std::size_t s = 0; s < length; ++s) {
    if (!row.documents.empty()) row.documents[s] = document;
    const bool ends =
        (options_.document_end && tokens[s] == *options_.document_end) ||
        (is_text && std::binary_search(file_starts.begin(), file_starts.end(),
                                       range.begin + static_cast<std::int64_t>(s) + 1));
    if (!ends) continue;
    ++document;
    if (options_.masked) continue;
    row.labels[s] = kIgnoredLabel;
    ++ignored;
  }
  // Padding sees only itself, so that no real position depends on it.
  if (!row.documents.empty())
    std::fill(row.documents.begin() + static_cast<std::ptrdiff_t>(length), row.documents.end(),
              document + 1);
  return ignored;
}

void Dataset::check_vocabulary(std::int64_t begin, std::span<const std::int64_t> tokens) const {
  check_token_ids(tokens, begin, *stream_, options_.vocab_size);
}

Dataset::RowCounts Dataset::read_chat(std::int64_t sample, const Row& row) const {
  std::size_t at = 0;
  std::int64_t document = 0, learnt = 0;
  std::vector<std::int64_t> tokens, ids;
  for (const ChatRange& chat : chat_->texts_of(sample)) {
    tokens.resize(static_cast<std::size_t>(chat.end - chat.begin));
    stream_->read_chat(chat.begin, tokens);
    ids.clear();
    for (const std::int64_t token : tokens)
      ids.push_back(text::id_of(static_cast<text::TokenId>(token)));
    check_vocabulary(chat.begin, ids);
    for (std::size_t i = 1; i < ids.size(); ++i, ++at) {
      const bool is_learnt = (tokens[i] & text::kNotLearnt) == 0;
      row.inputs[at] = ids[i - 1];
      row.labels[at] = is_learnt ? ids[i] : kIgnoredLabel;
      if (!row.documents.empty()) row.documents[at] = document;
      learnt += is_learnt;
    }
    ++document;
  }
  const auto from = static_cast<std::ptrdiff_t>(at);
  std::fill(row.inputs.begin() + from, row.inputs.end(), 0);
  std::fill(row.labels.begin() + from, row.labels.end(), kIgnoredLabel);
  // Padding sees only itself, so that no real position depends on it.
  if (!row.documents.empty())
    std::fill(row.documents.begin() + from, row.documents.end(), document);
  return {learnt, static_cast<std::int64_t>(at)};
}

Dataset::RowCounts Dataset::read(std::int64_t sample, const Row& row) const {
  check_internal(sample >= 0 && sample < size_, "data: sample {} is outside [0, {})", sample,
                 size_);
  if (chat_) return read_chat(sample, row);
  const TokenRange range = sample_range(sample);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(range.size()));
  stream_->read(range.begin, tokens);
  check_vocabulary(range.begin, tokens);
  const std::int64_t inputs = range.size() - tokens_behind();
  std::copy_n(tokens.begin(), inputs, row.inputs.begin());
  std::copy_n(tokens.begin() + (options_.masked ? 0 : 1), inputs, row.labels.begin());
  std::fill(row.inputs.begin() + inputs, row.inputs.end(), 0);
  std::fill(row.labels.begin() + inputs, row.labels.end(), kIgnoredLabel);
  if (options_.document_mask) return {inputs - mask_documents(range, tokens, row), inputs};
  for (std::size_t s = 0; s < row.documents.size(); ++s)
    row.documents[s] = static_cast<std::int64_t>(s) < inputs ? 0 : 1;
  return {inputs, inputs};
}

}  // namespace meshloom::train
