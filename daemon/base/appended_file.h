// SPDX-License-Identifier: Apache-2.0
// AppendedFile: a file that grows by all of what is appended, or by none of it.
#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/base/unique_fd.h"

namespace meshloom::base {

/// Also on a disk that is full now and then. Nobody else writes to the file meanwhile. Used by one
/// thread.
class AppendedFile {
 public:
  /// Open to be written with O_APPEND; what it holds behind `end` bytes is cut off by the first
  /// append.
  AppendedFile(UniqueFd fd, std::int64_t end) : fd_(std::move(fd)), end_(end) {}

  /// False, with errno, if the disk did not take all: the file is as it was before.
  bool append(std::string_view bytes);

 private:
  UniqueFd fd_;
  std::int64_t end_;
};

}  // namespace meshloom::base
