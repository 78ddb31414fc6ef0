// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/unix_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "daemon/base/files.h"
#include "daemon/base/system_message.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_to_listen(const fs::path& path, const std::string& why) {
  throw FailedPrecondition(fmt::format("cannot listen on socket {}: {}", base::shown(path), why),
                           "CANNOT_LISTEN", {{"address", base::shown(path)}});
}

sockaddr_un socket_name(const fs::path& path) {
  const std::string text = path.string();
  if (text.size() > kLongestSocketPath)
    throw InvalidArgument(
        fmt::format("socket {}: the path has {} bytes, a Unix socket's has at most {}; name a "
                    "shorter one",
                    base::shown(path), text.size(), kLongestSocketPath),
        "SOCKET_PATH_TOO_LONG");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, text.data(), text.size());
  return name;
}

base::UniqueFd new_socket() {
  return base::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Of a daemon that was killed.
void remove_left_behind(const fs::path& path, const sockaddr_un& name) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode))
    refuse_to_listen(path, "something else lies there, which is no socket");
  const base::UniqueFd probe = new_socket();
  const bool connects =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  if (connects || errno != ECONNREFUSED)
    refuse_to_listen(path, "somebody listens on it already (another meshloomd?)");
  ::unlink(path.c_str());
}

}  // namespace

UnixListener::UnixListener(fs::path path, For whom) : path_(std::move(path)) {
  const sockaddr_un name = socket_name(path_);
  remove_left_behind(path_, name);
  socket_ = new_socket();
  if (!socket_ || ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
    refuse_to_listen(path_, base::system_message(errno));
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) file_ = status.st_ino;
  // Nobody is let in before the mode is right: only then it listens.
  const mode_t mode = whom == For::kOtherAccounts ? 0666 : 0600;
  if (::chmod(path_.c_str(), mode) != 0 || ::listen(socket_.get(), SOMAXCONN) != 0)
    refuse_to_listen(path_, base::system_message(errno));
}

UnixListener::~UnixListener() {
  struct stat status {};
  if (file_ != 0 && ::lstat(path_.c_str(), &status) == 0 && status.st_ino == file_)
    ::unlink(path_.c_str());
}

SocketAddress abstract_address(const std::string& name) {
  check_internal(!name.empty() && name.size() <= 100, "the name of a socket has {} bytes",
                 name.size());
  SocketAddress address;
  auto& unix_address = reinterpret_cast<sockaddr_un&>(address.storage);
  unix_address.sun_family = AF_UNIX;
  std::memcpy(unix_address.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

base::UniqueFd listen_abstract(const std::string& name) {
  const SocketAddress address = abstract_address(name);
  base::UniqueFd socket = new_socket();
  if (!socket || ::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    refuse_to_listen(name, base::system_message(errno));
  return socket;
}

}  // namespace meshloom::control
