// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/carried_files.h"

#include <fmt/format.h>

#include "daemon/base/input_file.h"
#include "kernels/base/error.h"

namespace meshloom::train {

CarriedFile read_carried_file(const std::filesystem::path& path, std::uint64_t most) {
  return {path.filename().string(), base::InputFile(path).read_text(most)};
}

std::vector<CarriedFile> read_carried_files(std::span<const std::filesystem::path> paths,
                                            std::vector<std::string>& notes) {
  std::vector<CarriedFile> files;
  std::uint64_t left = kMostCarriedBytes;
  for (const std::filesystem::path& path : paths) {
    try {
      files.push_back(read_carried_file(path, left));
      left -= files.back().bytes.size();
    } catch (const Error& error) {
      notes.push_back(fmt::format("{} does not go along with checkpoints and exports: {}",
                                  path.filename().string(), error.what()));
    }
  }
  return files;
}

}  // namespace meshloom::train
