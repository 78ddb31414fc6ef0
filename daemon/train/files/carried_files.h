// SPDX-License-Identifier: Apache-2.0
// Files that go along with weights, such as a tokenizer's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace meshloom::train {

/// All files that go along with a model have at most so many bytes together.
inline constexpr std::uint64_t kMostCarriedBytes = std::uint64_t{256} << 20;

/// A CarriedFile is held in memory: what becomes of the file later is no matter of what is saved.
struct CarriedFile {
  std::string name, bytes;
};

/// Throws as base::InputFile, also for a file of more than `most` bytes.
CarriedFile read_carried_file(const std::filesystem::path& path,
                              std::uint64_t most = kMostCarriedBytes);

/// Reads the files that can be read and have at most kMostCarriedBytes together, and adds a line to
/// `notes` for each of the others: no training has to end for them.
std::vector<CarriedFile> read_carried_files(std::span<const std::filesystem::path> paths,
                                            std::vector<std::string>& notes);

}  // namespace meshloom::train
