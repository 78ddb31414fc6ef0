// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/appended_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace meshloom::base {

bool AppendedFile::append(std::string_view bytes) {
  // Bytes behind the end are of a process that died, or of a write that could not be cut back.
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return false;
  if (status.st_size > end_ && ::ftruncate(fd_.get(), end_) != 0) return false;
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t wrote = ::write(fd_.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int error = wrote < 0 ? errno : ENOSPC;
      // The next append cuts it first where it cannot be cut now.
      [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), end_);
      errno = error;
      return false;
    }
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  end_ += static_cast<std::int64_t>(bytes.size());
  return true;
}

}  // namespace meshloom::base
