// SPDX-License-Identifier: Apache-2.0
// XXH3-128 digests, spelled as 32 hex digits.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/input_file.h"

namespace meshloom::train {

/// It is fed piece by piece.
class Digest {
 public:
  Digest();
  void update(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

std::string digest_of(std::span<const std::byte> bytes);
/// Returns the digest of a file's first and last `window` bytes, or of all if it has no more.
std::string digest_of_ends(const base::InputFile& file, std::uint64_t window);
/// Returns the digest of a whole file, read piece by piece. `go_on`, if given, is called before
/// each piece, so that what it throws ends the reading. Throws as base::InputFile.
std::string digest_of_file(const std::filesystem::path& path,
                           const std::function<void()>& go_on = {});

}  // namespace meshloom::train
