// SPDX-License-Identifier: Apache-2.0
// SHA-256 digests, spelled as 64 lower-case hex digits. Computed by libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace meshloom::base {

/// It is fed piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Returns the digest of the bytes that came so far, in hexadecimal; more may follow.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Tells whether a text is spelled as a digest.
bool is_sha256(std::string_view text);

}  // namespace meshloom::base
