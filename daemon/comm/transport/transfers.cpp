// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/transport/transfers.h"

#include <algorithm>
#include <optional>

namespace meshloom::comm {
namespace {

// MPI counts are 32-bit.
constexpr std::size_t kLargestMessage = std::size_t{1} << 28;

std::optional<Signature> of_pair(const Signature* signature, std::size_t bytes) {
  if (signature == nullptr || signature->kind == CollectiveKind::kNone) return std::nullopt;
  Signature own = *signature;
  own.pair_bytes = static_cast<std::int64_t>(bytes);
  return own;
}

}  // namespace

void Transfers::send(const std::byte* data, std::size_t bytes, int peer, int tag,
                     const Signature* signature) {
  *bytes_sent_ += bytes;
  const std::optional<Signature> first = of_pair(signature, bytes);
  for (std::size_t at = 0; at < bytes || (first && at == 0); at += kLargestMessage)
    pending_.push_back({transport_->send(data + at, std::min(kLargestMessage, bytes - at), peer,
                                         tag, first && at == 0 ? &*first : nullptr),
                        peer, false});
}

void Transfers::recv(std::byte* data, std::size_t bytes, int peer, int tag,
                     const Signature* signature) {
  const std::optional<Signature> first = of_pair(signature, bytes);
  for (std::size_t at = 0; at < bytes || (first && at == 0); at += kLargestMessage)
    pending_.push_back({transport_->recv(data + at, std::min(kLargestMessage, bytes - at), peer,
                                         tag, first && at == 0 ? &*first : nullptr),
                        peer, true});
}

bool Transfers::done() {
  std::size_t kept = 0, at = 0;
  const auto drop = [&](std::size_t end) {
    completed_ += end - kept;
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(kept),
                   pending_.begin() + static_cast<std::ptrdiff_t>(end));
  };
  try {
    for (; at < pending_.size(); ++at)
      if (!transport_->test(pending_[at].request)) pending_[kept++] = pending_[at];
  } catch (SignatureDiffers& difference) {
    difference.set_peer(pending_[at].peer);
    drop(at + 1);
    throw;
  } catch (...) {
    drop(at + 1);
    throw;
  }
  drop(at);
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
