// SPDX-License-Identifier: Apache-2.0
// TokenBytes: the bytes of text that labels stand for, by which losses compare across tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/train/files/token_stream.h"

namespace meshloom::train {

class TokenBytes {
 public:
  /// Makes an object that knows no bytes.
  TokenBytes() = default;
  /// Takes bytes by token id; other tokens stand for none.
  explicit TokenBytes(std::vector<std::uint32_t> by_token);
  /// The mean of some text: each token stands for so many.
  explicit TokenBytes(double each) : each_(each) {}

  bool known() const { return by_token_ != nullptr || each_ > 0.0; }
  /// Returns the bytes of the labels that count, which are those not below 0; 0 where it is not
  /// known.
  double of(std::span<const std::int64_t> labels) const;

 private:
  std::shared_ptr<const std::vector<std::uint32_t>> by_token_;
  double each_ = 0.0;
};

/// Returns the mean for a stream whose tokens are bytes, or were made of text by this program,
/// whose files say how much it was; not known for others.
TokenBytes mean_token_bytes(const TokenStream& stream);

}  // namespace meshloom::train
