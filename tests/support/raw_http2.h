// SPDX-License-Identifier: Apache-2.0
// HTTP/2 by hand, for what no client library sends.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/support/loopback.h"

namespace meshloom::test {

/// A connection to 127.0.0.1 that writes frames. What the server sends is read and dropped.
class RawHttp2 {
 public:
  static constexpr std::uint8_t kHeaders = 1, kReset = 3, kSettings = 4, kContinuation = 9;
  static constexpr std::uint8_t kEndOfHeaders = 4;

  explicit RawHttp2(int port) {
    socket_ = connect_to_loopback(port);
    open_ = static_cast<bool>(socket_);
    send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, ""));
  }

  static std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                           std::string_view payload) {
    std::string frame;
    append(frame, static_cast<std::uint32_t>(payload.size()), 3);
    append(frame, type, 1);
    append(frame, flags, 1);
    append(frame, stream, 4);
    return frame.append(payload);
  }
  /// The header block of a call.
  static std::string call(const std::string& method) {
    return header(":method", "POST") + header(":scheme", "http") + header(":path", method) +
           header(":authority", "test") + header("te", "trailers") +
           header("content-type", "application/grpc");
  }
  /// Literally, of at most 126 bytes each.
  static std::string header(const std::string& name, const std::string& value) {
    return std::string(1, '\0') + static_cast<char>(name.size()) + name +
           static_cast<char>(value.size()) + value;
  }
  /// A frame that resets a stream (CANCEL).
  static std::string reset(std::uint32_t stream) {
    return frame(kReset, 0, stream, std::string_view("\0\0\0\x08", 4));
  }

  /// False once the server has ended the connection, or takes nothing for 10 s.
  bool send(std::string_view bytes) {
    while (open_ && !bytes.empty()) {
      drop_received();
      const ssize_t sent =
          ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 && (errno != EAGAIN || !wait(POLLOUT | POLLIN, std::chrono::seconds(10))))
        open_ = false;
    }
    return open_;
  }
  /// Whether the server ends the connection within the time.
  bool ends_within(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (open_ && std::chrono::steady_clock::now() < end)
      if (wait(POLLIN, std::chrono::milliseconds(50))) drop_received();
    return !open_;
  }

 private:
  static void append(std::string& bytes, std::uint32_t number, int size) {
    for (int i = size - 1; i >= 0; --i) bytes += static_cast<char>(number >> (8 * i));
  }
  bool wait(int events, std::chrono::milliseconds time) const {
    pollfd watched{socket_.get(), static_cast<short>(events), 0};
    return ::poll(&watched, 1, static_cast<int>(time.count())) == 1;
  }
  void drop_received() {
    char piece[4096];
    ssize_t count = 0;
    do count = ::recv(socket_.get(), piece, sizeof piece, MSG_DONTWAIT);
    while (count > 0);
    if (count == 0 || errno != EAGAIN) open_ = false;
  }

  base::UniqueFd socket_;
  bool open_ = false;
};

/// One client that begins calls and resets them at once, until the server ends the connection or
/// the time is over. Whether it ended; `calls`: so many were begun.
inline bool reset_rapidly(RawHttp2& client, const std::string& method,
                          std::chrono::milliseconds time, std::int64_t* calls) {
  const std::string headers = RawHttp2::call(method);
  const auto end = std::chrono::steady_clock::now() + time;
  std::uint32_t stream = 1;
  while (std::chrono::steady_clock::now() < end) {
    std::string frames;
    for (int i = 0; i < 50; ++i, stream += 2, ++*calls)
      frames += RawHttp2::frame(RawHttp2::kHeaders, RawHttp2::kEndOfHeaders, stream, headers) +
                RawHttp2::reset(stream);
    if (!client.send(frames)) return true;
  }
  return false;
}

/// One client that sends a header block without end. As reset_rapidly; `bytes`: so many were sent.
inline bool continue_headers(RawHttp2& client, const std::string& method,
                             std::chrono::milliseconds time, std::int64_t* bytes) {
  std::string block;
  while (block.size() < 16'000)
    block += RawHttp2::header(std::string(100, 'x'), std::string(100, 'y'));
  const std::string frame = RawHttp2::frame(RawHttp2::kContinuation, 0, 1, block);
  client.send(RawHttp2::frame(RawHttp2::kHeaders, 0, 1, RawHttp2::call(method)));
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (!client.send(frame)) return true;
    *bytes += static_cast<std::int64_t>(frame.size());
  }
  return false;
}

}  // namespace meshloom::test
