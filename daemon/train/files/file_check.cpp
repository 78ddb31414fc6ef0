// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/file_check.h"

#include "kernels/base/error.h"

namespace meshloom::train {

void checkpoint_damaged(const std::filesystem::path& file, const std::string& why) {
  throw DataLoss(fmt::format("checkpoint file {} is damaged: {}", file.string(), why),
                 "CHECKPOINT_DAMAGED", {{"path", file.string()}});
}

void check_size(const std::filesystem::path& file, std::uint64_t bytes, std::uint64_t expected) {
  if (bytes != expected)
    checkpoint_damaged(file, fmt::format("{} bytes instead of {}", bytes, expected));
}

void check_digest(const std::filesystem::path& file, const std::string& read,
                  const std::string& expected) {
  if (read != expected)
    checkpoint_damaged(file, fmt::format("its XXH3-128 is {}, expected {}", read, expected));
}

}  // namespace meshloom::train
