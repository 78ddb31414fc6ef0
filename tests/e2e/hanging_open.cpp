// SPDX-License-Identifier: Apache-2.0
// A library to preload: opening a file whose path holds $HANGING_OPEN never returns, as on a file
// system whose server is gone. That it hangs shows as the file $HANGING_OPEN_ENTERED.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

using Open = int (*)(const char*, int, ...);

int open_or_hang(const char* name, const char* path, int flags, mode_t mode) {
  const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, name));
  const char* hanging = std::getenv("HANGING_OPEN");
  if (hanging != nullptr && std::strstr(path, hanging) != nullptr) {
    if (const char* entered = std::getenv("HANGING_OPEN_ENTERED"))
      ::close(real(entered, O_WRONLY | O_CREAT, 0600));
    while (true) ::pause();
  }
  return real(path, flags, mode);
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_or_hang("open", path, flags, mode);
}

extern "C" int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_or_hang("open64", path, flags, mode);
}
