// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/connection_watch.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

using nlohmann::json;

// Where the kernel's tcp_info has tcpi_bytes_received and tcpi_bytes_sent: that of glibc ends
// before.
constexpr std::size_t kReceivedAt = 128, kSentAt = 200;
// More than any server has connections.
constexpr std::intptr_t kMostSockets = 10'000;
// Fewer bytes since the last look are few calls.
constexpr std::int64_t kFewBytes = 1000;

/// An answer of gRPC's channelz, which is JSON whose numbers are strings; null if there is none.
json channelz_answer(char* text) {
  if (text == nullptr) return nullptr;
  json answer = json::parse(text, nullptr, false);
  gpr_free(text);
  return answer;
}

std::int64_t number_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? std::stoll(found->get<std::string>()) : 0;
}

/// Calls `body` for each element of a list in an answer.
template <typename Body>
void for_each_in(const json& answer, const char* list, const Body& body) {
  if (!answer.is_object() || !answer.contains(list)) return;
  for (const json& item : answer[list]) body(item);
}

std::string peer_text(const std::string& client, const std::string& port) {
  return client + ' ' + port;
}

}  // namespace

ino_t socket_number(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

void ConnectionWatch::add(int fd, ino_t socket, const SocketAddress& peer) {
  const std::string client = client_of(peer);
  connections_.push_back({.fd = fd,
                          .socket = socket,
                          .client = client,
                          .peer = peer_text(client, std::to_string(port_of(peer)))});
}

bool ConnectionWatch::read_tcp(Connection& connection) {
  std::array<char, 256> info{};
  socklen_t size = info.size();
  if (socket_number(connection.fd) != connection.socket ||
      ::getsockopt(connection.fd, IPPROTO_TCP, TCP_INFO, info.data(), &size) != 0)
    return false;
  std::int64_t received = 0, sent = 0;
  int unread = 0;  // in the kernel: on a busy host megabytes of an honest request
  if (::ioctl(connection.fd, FIONREAD, &unread) != 0) return false;
  std::memcpy(&received, info.data() + kReceivedAt, sizeof received);
  std::memcpy(&sent, info.data() + kSentAt, sizeof sent);
  received -= unread;
  // A kernel before 4.19 does not say what was sent.
  if (size < kSentAt + sizeof sent) sent = received;
  connection.has_moved =
      received - connection.received >= kFewBytes || connection.calls > kCallsAtOnce;
  if (sent != connection.sent) connection.answered = received;
  connection.received = received;
  connection.sent = sent;
  return true;
}

void ConnectionWatch::find_numbers() {
  std::map<std::string, Connection*> wanted;
  for (Connection& connection : connections_)
    if (connection.number == 0 && connection.has_moved) wanted[connection.peer] = &connection;
  if (wanted.empty()) return;
  for_each_in(channelz_answer(grpc_channelz_get_servers(0)), "server", [&](const json& server) {
    const std::int64_t number = number_in(server.value("ref", json::object()), "serverId");
    for_each_in(channelz_answer(grpc_channelz_get_server_sockets(number, 0, kMostSockets)),
                "socketRef", [&](const json& socket) {
                  // Such as "chttp2 ipv4:127.0.0.1:4711".
                  const std::string name = socket.value("name", "");
                  const std::string address = name.substr(name.find(' ') + 1);
                  const auto found = wanted.find(
                      peer_text(client_of_peer(address), address.substr(address.rfind(':') + 1)));
                  if (found != wanted.end()) found->second->number = number_in(socket, "socketId");
                });
  });
}

void ConnectionWatch::count_calls(Connection& connection) {
  const json answer = channelz_answer(grpc_channelz_get_socket(connection.number));
  if (!answer.is_object()) return;
  const json data = answer.value("socket", json::object()).value("data", json::object());
  // The counts are read one after the other, so that a call may end that had not begun.
  connection.calls = std::max<std::int64_t>(0, number_in(data, "streamsStarted") -
                                                   number_in(data, "streamsSucceeded") -
                                                   number_in(data, "streamsFailed"));
}

std::vector<ConnectionWatch::Finding> ConnectionWatch::look() {
  std::erase_if(connections_, [](Connection& connection) { return !read_tcp(connection); });
  find_numbers();
  std::map<std::string, std::int64_t> reset;  // by client
  for (Connection& connection : connections_) {
    if (connection.has_moved && connection.number != 0) count_calls(connection);
    reset[connection.client] += std::max<std::int64_t>(0, connection.calls - kCallsAtOnce);
  }
  std::vector<Finding> findings;
  for (Connection& connection : connections_) {
    if (connection.is_found) continue;
    const std::int64_t unanswered = connection.received - connection.answered;
    const std::int64_t most =
        std::min(kMostUnanswered + kMostUnansweredOfCall * connection.calls, kMostUnansweredInAll);
    std::string cause;
    if (connection.calls > kCallsAtOnce && reset[connection.client] > kMostReset)
      cause = fmt::format("{} of its calls were begun and reset, and are kept by gRPC",
                          reset[connection.client]);
    else if (unanswered > most)
      cause = fmt::format("it sent {} bytes that belong to no call", unanswered);
    connection.suspect_looks = cause.empty() ? 0 : connection.suspect_looks + 1;
    if (connection.suspect_looks < kLooksInARow && unanswered <= kFarBeyond * most) continue;
    connection.is_found = true;
    findings.push_back({connection.fd, connection.client, std::move(cause)});
  }
  return findings;
}

}  // namespace meshloom::control
