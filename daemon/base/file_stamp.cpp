// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/file_stamp.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace meshloom::base {

std::optional<std::string> file_stamp(const std::filesystem::path& path) {
  struct ::stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return fmt::format("{}:{}:{}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

}  // namespace meshloom::base
