// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/segment_mailbox.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "daemon/base/system_message.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

struct Letter {
  Nonce secret{};   ///< of the mailbox that it goes to
  Nonce segment{};  ///< of the segment whose descriptor comes along
};

constexpr std::size_t kNameOffset = offsetof(sockaddr_un, sun_path);

}  // namespace

SegmentMailbox::SegmentMailbox() {
  socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t length = sizeof(name);
  // A bind without a name lets the kernel choose an abstract one.
  const bool open =
      socket_ &&
      bind(socket_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(sa_family_t)) == 0 &&
      getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
      length - kNameOffset <= sizeof(address_.name) &&
      getrandom(address_.secret.data(), sizeof(Nonce), 0) == static_cast<ssize_t>(sizeof(Nonce));
  if (!open) {
    const std::string text = base::system_message(errno);
    throw IoError("symmetric memory: no Unix socket for descriptors: " + text,
                  "SYMM_MEM_NO_SOCKET");
  }
  address_.name_bytes = static_cast<std::uint32_t>(length - kNameOffset);
  std::memcpy(address_.name, name.sun_path, address_.name_bytes);
}

void SegmentMailbox::post(const MailboxAddress& to, std::shared_ptr<const Segment> segment) {
  const bool waits = std::any_of(waiting_.begin(), waiting_.end(), [&](const Outgoing& one) {
    return one.segment == segment && one.to.secret == to.secret;
  });
  if (!waits) waiting_.push_back({to, std::move(segment)});
  pump();
}

void SegmentMailbox::pump() {
  while (receive()) {
  }
  std::erase_if(waiting_, [this](const Outgoing& one) { return send(one); });
}

base::UniqueFd SegmentMailbox::take(const Nonce& nonce) {
  auto found = arrived_.extract(nonce);
  return found.empty() ? base::UniqueFd() : std::move(found.mapped());
}

/// False if it has to wait: the peer's queue is full.
bool SegmentMailbox::send(const Outgoing& one) {
  Letter letter{one.to.secret, one.segment->name().nonce};
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, one.to.name, one.to.name_bytes);
  iovec bytes{&letter, sizeof(letter)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = static_cast<socklen_t>(kNameOffset + one.to.name_bytes);
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = one.segment->fd();
  std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return true;
  // Too many descriptors on their way end as the peer takes them in.
  return errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS && errno != ENOBUFS;
}

/// False if nothing more is there.
bool SegmentMailbox::receive() {
  Letter letter;
  iovec bytes{&letter, sizeof(letter)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EINTR;
  int descriptor = -1;  // the one that came with the message
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
      std::memcpy(&descriptor, CMSG_DATA(part), sizeof(descriptor));
  base::UniqueFd fd(descriptor);
  if (!fd) return true;
  const bool ours = got == static_cast<ssize_t>(sizeof(letter)) && letter.secret == address_.secret;
  if (ours) arrived_.try_emplace(letter.segment, std::move(fd));
  return true;
}

}  // namespace meshloom::comm
