// SPDX-License-Identifier: Apache-2.0
// Whether the files of a checkpoint are those that its manifest describes, and those of an export
// the ones whose digests it has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace meshloom::train {

/// Tells of a damaged file of a checkpoint by throwing DataLoss (CHECKPOINT_DAMAGED).
[[noreturn]] void checkpoint_damaged(const std::filesystem::path& file, const std::string& why);

/// Throws it if the file has another size than the manifest says.
void check_size(const std::filesystem::path& file, std::uint64_t bytes, std::uint64_t expected);

/// Throws it if what was read of the file has another digest than the manifest says.
void check_digest(const std::filesystem::path& file, const std::string& read,
                  const std::string& expected);

}  // namespace meshloom::train
