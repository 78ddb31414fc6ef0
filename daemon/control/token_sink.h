// SPDX-License-Identifier: Apache-2.0
// TokenSink: where the tokens of a sample go.
#pragma once

#include <cstdint>
#include <exception>

namespace meshloom::control {

/// Tokens that one request may ask for.
inline constexpr int kMostTokens = 65'536;

struct DrawnToken {
  std::int64_t id = 0;
  std::int64_t weights_step = 0;  ///< optimizer steps behind the weights; 0: not known
};

/// Called by the scheduler's thread, or by the one that stops it, which must not be kept waiting.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void token(const DrawnToken& token) = 0;
  /// The last call; null where all tokens were drawn.
  virtual void end(const std::exception_ptr& error) = 0;
  /// Nobody reads any more: nothing else is drawn.
  virtual bool left() const = 0;
};

}  // namespace meshloom::control
