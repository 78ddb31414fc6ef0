// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/token_bytes.h"

#include <algorithm>
#include <utility>

#include "daemon/text/token_file.h"

namespace meshloom::train {

TokenBytes::TokenBytes(std::vector<std::uint32_t> by_token)
    : by_token_(std::make_shared<const std::vector<std::uint32_t>>(std::move(by_token))) {}

double TokenBytes::of(std::span<const std::int64_t> labels) const {
  if (by_token_ == nullptr)
    return each_ *
           static_cast<double>(std::count_if(labels.begin(), labels.end(),
                                             [](std::int64_t label) { return label >= 0; }));
  double bytes = 0.0;
  for (const std::int64_t label : labels)
    if (label >= 0 && static_cast<std::size_t>(label) < by_token_->size())
      bytes += (*by_token_)[static_cast<std::size_t>(label)];
  return bytes;
}

TokenBytes mean_token_bytes(const TokenStream& stream) {
  if (stream.format() == TokenFormat::kText) return TokenBytes(1.0);
  double bytes = 0.0, tokens = 0.0;
  for (const auto& [name, file] : stream.files()) {
    const auto summary = text::token_file_summary(*file);
    if (!summary) return TokenBytes();
    bytes += static_cast<double>(summary->bytes);
    tokens += static_cast<double>(summary->tokens);
  }
  return tokens > 0.0 ? TokenBytes(bytes / tokens) : TokenBytes();
}

}  // namespace meshloom::train
