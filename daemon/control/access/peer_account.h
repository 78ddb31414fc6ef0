// SPDX-License-Identifier: Apache-2.0
// Which account of this host is at the other end of a connection, as the kernel knows it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace meshloom::control {

/// The account whose process has the other end of a Unix socket (SO_PEERCRED), or of a TCP
/// connection over loopback, as of the moment of the call (NETLINK_SOCK_DIAG, else /proc/net).
/// Nothing where the other end is not on this host, or has been closed: the kernel shows a socket
/// without a process as root's, so that one counts only while it is established and has an inode.
std::optional<uid_t> peer_account(int connection);

/// The name of an account, and the names of its groups. Asks the host's directories, which may take
/// time. A number where it has no name.
std::string account_name(uid_t account);
std::vector<std::string> groups_of(uid_t account);

}  // namespace meshloom::control
