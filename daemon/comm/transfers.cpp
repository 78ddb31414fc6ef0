// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/transfers.h"

#include <algorithm>

namespace meshloom::comm {
namespace {

// MPI counts are 32-bit.
constexpr std::size_t kLargestMessage = std::size_t{1} << 28;

}  // namespace

void Transfers::send(const std::byte* data, std::size_t bytes, int peer, int tag) {
  for (std::size_t at = 0; at < bytes; at += kLargestMessage)
    pending_.push_back(
        {transport_->send(data + at, std::min(kLargestMessage, bytes - at), peer, tag), peer,
         false});
  *bytes_sent_ += bytes;
}

void Transfers::recv(std::byte* data, std::size_t bytes, int peer, int tag) {
  for (std::size_t at = 0; at < bytes; at += kLargestMessage)
    pending_.push_back(
        {transport_->recv(data + at, std::min(kLargestMessage, bytes - at), peer, tag), peer,
         true});
}

bool Transfers::done() {
  const auto left = std::remove_if(pending_.begin(), pending_.end(),
                                   [&](const Pending& p) { return transport_->test(p.request); });
  completed_ += static_cast<std::uint64_t>(pending_.end() - left);
  pending_.erase(left, pending_.end());
  return pending_.empty();
}

std::vector<int> Transfers::missing() const {
  std::vector<int> peers;
  const bool receives =
      std::any_of(pending_.begin(), pending_.end(), [](const Pending& p) { return p.receive; });
  for (const Pending& p : pending_)
    if (p.receive == receives) peers.push_back(p.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void Transfers::cancel() {
  while (!pending_.empty()) {
    transport_->cancel(pending_.back().request);
    pending_.pop_back();
  }
}

}  // namespace meshloom::comm
