// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/peer_account.h"

#include <arpa/inet.h>
#include <grp.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

#include "daemon/base/unique_fd.h"

namespace meshloom::control {
namespace {

/// One end of a TCP connection, as the kernel's tables have it.
struct End {
  int family = AF_INET;
  std::array<std::uint32_t, 4> address{};  ///< in the order of the network
  std::uint16_t port = 0;                  ///< likewise

  bool is_loopback() const {
    if (family == AF_INET) return (ntohl(address[0]) >> 24) == 127;
    in6_addr ipv6{};
    std::memcpy(&ipv6, address.data(), sizeof ipv6);
    return IN6_IS_ADDR_LOOPBACK(&ipv6) ||
           (IN6_IS_ADDR_V4MAPPED(&ipv6) && (ntohl(address[3]) >> 24) == 127);
  }
  /// An IPv4 address that is written as an IPv6 one: the other end's socket may be of either kind.
  std::optional<End> as_ipv4() const {
    in6_addr ipv6{};
    std::memcpy(&ipv6, address.data(), sizeof ipv6);
    if (family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&ipv6)) return std::nullopt;
    return End{AF_INET, {address[3]}, port};
  }
};

std::optional<End> end_of(const sockaddr_storage& storage) {
  End end;
  end.family = storage.ss_family;
  if (storage.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(storage);
    end.address[0] = ipv4.sin_addr.s_addr;
    end.port = ipv4.sin_port;
    return end;
  }
  if (storage.ss_family != AF_INET6) return std::nullopt;
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(storage);
  std::memcpy(end.address.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
  end.port = ipv6.sin6_port;
  return end;
}

/// What a table of the kernel says of a socket.
struct Row {
  std::uint8_t state = 0;
  uid_t account = 0;
  std::uint64_t inode = 0;
};

std::optional<uid_t> account_in(const std::optional<Row>& row) {
  if (!row || row->state != TCP_ESTABLISHED || row->inode == 0) return std::nullopt;
  return row->account;
}

/// Of the thread: a host that is short of descriptors has this one, and nobody is taken for a
/// stranger for want of one.
int diagnosis_socket() {
  thread_local const base::UniqueFd socket = [] {
    base::UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    const timeval most{.tv_sec = 0, .tv_usec = 100'000};
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    return fd;
  }();
  return socket.get();
}

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

Question question_about(const End& from, const End& to, std::uint32_t number) {
  Question question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.header.nlmsg_seq = number;
  inet_diag_req_v2& request = question.request;
  request.sdiag_family = static_cast<std::uint8_t>(from.family);
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = ~0U;
  request.id.idiag_sport = from.port;
  request.id.idiag_dport = to.port;
  std::memcpy(request.id.idiag_src, from.address.data(), sizeof request.id.idiag_src);
  std::memcpy(request.id.idiag_dst, to.address.data(), sizeof request.id.idiag_dst);
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

/// The one socket from `from` to `to`. Nothing as well where the kernel cannot be asked so: it has
/// one answer for both.
std::optional<Row> ask_netlink(const End& from, const End& to) {
  thread_local std::uint32_t number = 0;
  const int socket = diagnosis_socket();
  const Question question = question_about(from, to, ++number);
  if (socket < 0 || ::send(socket, &question, sizeof question, 0) != sizeof question)
    return std::nullopt;
  alignas(nlmsghdr) std::array<char, 8192> buffer{};
  const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data());
  ssize_t size = 0;
  // An answer to an earlier question, which came too late, is passed over.
  do size = ::recv(socket, buffer.data(), buffer.size(), 0);
  while (size >= static_cast<ssize_t>(sizeof *header) && header->nlmsg_seq != number);
  if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
    return std::nullopt;
  const auto* answer = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  // A kernel that finds no connection may answer with a listener of the port.
  if (answer->id.idiag_sport != from.port || answer->id.idiag_dport != to.port) return std::nullopt;
  return Row{answer->idiag_state, answer->idiag_uid, answer->idiag_inode};
}

std::string table_text(const End& end) {
  std::string text;
  char piece[16];
  for (int i = 0; i < (end.family == AF_INET ? 1 : 4); ++i) {
    std::snprintf(piece, sizeof piece, "%08X", end.address[static_cast<std::size_t>(i)]);
    text += piece;
  }
  std::snprintf(piece, sizeof piece, ":%04X", ntohs(end.port));
  return text + piece;
}

std::optional<Row> look_in_proc(const End& from, const End& to) {
  std::ifstream table(from.family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  const std::string local = table_text(from), remote = table_text(to);
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, own, other, state, queues, timer, retries, timeout;
    unsigned long long account = 0, inode = 0;
    if (!(words >> number >> own >> other >> state >> queues >> timer >> retries >> account >>
          timeout >> inode) ||
        own != local || other != remote)
      continue;
    return Row{static_cast<std::uint8_t>(std::stoul(state, nullptr, 16)),
               static_cast<uid_t>(account), inode};
  }
  return std::nullopt;
}

std::optional<Row> socket_between(const End& from, const End& to) {
  const std::optional<Row> row = ask_netlink(from, to);
  return row ? row : look_in_proc(from, to);
}

std::optional<sockaddr_storage> name_of(int connection, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (name(connection, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return storage;
}

}  // namespace

std::optional<uid_t> peer_account(int connection) {
  const auto own = name_of(connection, ::getsockname), peer = name_of(connection, ::getpeername);
  if (!own || !peer) return std::nullopt;
  if (own->ss_family == AF_UNIX) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
      return std::nullopt;
    return credentials.uid;
  }
  const auto to = end_of(*own), from = end_of(*peer);
  if (!to || !from || !to->is_loopback() || !from->is_loopback()) return std::nullopt;
  std::optional<Row> row = socket_between(*from, *to);
  if (!row && from->as_ipv4() && to->as_ipv4())
    row = socket_between(*from->as_ipv4(), *to->as_ipv4());
  return account_in(row);
}

std::string account_name(uid_t account) {
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(account, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? found->pw_name : std::to_string(account);
}

std::vector<std::string> groups_of(uid_t account) {
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(account, &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) return {};
  std::vector<gid_t> numbers(64);
  int count = static_cast<int>(numbers.size());
  if (::getgrouplist(found->pw_name, found->pw_gid, numbers.data(), &count) < 0) {
    numbers.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(found->pw_name, found->pw_gid, numbers.data(), &count) < 0) return {};
  }
  numbers.resize(static_cast<std::size_t>(count));
  std::vector<std::string> names;
  for (const gid_t number : numbers) {
    std::array<char, 65536> room{};
    group row{};
    group* group = nullptr;
    ::getgrgid_r(number, &row, room.data(), room.size(), &group);
    if (group != nullptr) names.emplace_back(group->gr_name);
  }
  return names;
}

}  // namespace meshloom::control
