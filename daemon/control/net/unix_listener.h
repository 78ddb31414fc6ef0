// SPDX-License-Identifier: Apache-2.0
// UnixListener: a Unix socket that listens, and its name in the file system.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

#include "daemon/base/unique_fd.h"
#include "daemon/control/net/listen_address.h"

namespace meshloom::control {

/// The longest path of a Unix socket (sun_path, but for the zero at its end).
inline constexpr std::size_t kLongestSocketPath = 107;

/// Its file lasts as long as this. Whoever may reach it is known by its folder, or by what the
/// kernel says of who connects.
class UnixListener {
 public:
  enum class For { kOwnAccount, kOtherAccounts };

  /// Takes the place of a socket that nobody listens on any more. Throws InvalidArgument
  /// (SOCKET_PATH_TOO_LONG) naming the path and its length, and FailedPrecondition (CANNOT_LISTEN)
  /// where somebody listens, something else lies there, or the system refuses.
  UnixListener(std::filesystem::path path, For whom);
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The socket, nonblocking, for whoever accepts.
  base::UniqueFd take() { return std::move(socket_); }

 private:
  std::filesystem::path path_;
  base::UniqueFd socket_;
  ino_t file_ = 0;  ///< its own: another one may have taken the name since
};

/// What gRPC writes before the name of a Unix socket that has no file: it is gone with its process.
inline constexpr const char* kAbstractScheme = "unix-abstract:";

/// Of such a socket. Its name has at most 100 bytes.
SocketAddress abstract_address(const std::string& name);
/// Listens on such a socket, nonblocking. Any account of the host may connect. Throws
/// FailedPrecondition (CANNOT_LISTEN).
base::UniqueFd listen_abstract(const std::string& name);

}  // namespace meshloom::control
