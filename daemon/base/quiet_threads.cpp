// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/quiet_threads.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace meshloom::base {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

/// The path of this program, which the kernel takes the name of the process from: executed as
/// kSelf it would be called "exe". Empty if it is not known, or if the path is another file's now.
std::string own_path() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink(kSelf, path, sizeof path - 1);
  if (size <= 0) return "";
  path[size] = '\0';
  struct stat own {
  }, found{};
  const bool same = ::stat(kSelf, &own) == 0 && ::stat(path, &found) == 0 &&
                    own.st_dev == found.st_dev && own.st_ino == found.st_ino;
  return same ? path : "";
}

}  // namespace

void use_quiet_threads(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  const std::string path = own_path();
  if (path.empty()) return;
  // Without the variable the program would execute itself without end.
  if (::setenv("GOMP_SPINCOUNT", kSpinCount, 1) != 0) return;
  ::execv(path.c_str(), argv);
  // The program goes on with libgomp's own count.
  ::unsetenv("GOMP_SPINCOUNT");
}

}  // namespace meshloom::base
