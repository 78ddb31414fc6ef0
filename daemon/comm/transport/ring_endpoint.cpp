// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/transport/shared_memory_transport.h"

#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::comm {

RingEndpoint::RingEndpoint(std::shared_ptr<const RingField> field, int rank)
    : field_(std::move(field)),
      rank_(rank),
      sends_(static_cast<std::size_t>(field_->world_size)),
      broken_(static_cast<std::size_t>(field_->world_size)),
      incoming_(static_cast<std::size_t>(field_->world_size)) {}

RingEndpoint::Request RingEndpoint::new_request() {
  if (free_.empty()) {
    requests_.push_back(State::kPending);
    return static_cast<Request>(requests_.size() - 1);
  }
  const Request request = free_.back();
  free_.pop_back();
  requests_[request] = State::kPending;
  return request;
}

RingEndpoint::Request RingEndpoint::send(const std::byte* data, std::size_t bytes, int peer,
                                         std::uint64_t channel, int tag,
                                         const Signature* signature) {
  const Request request = new_request();
  const auto p = static_cast<std::size_t>(peer);
  const Header header{channel, static_cast<std::uint64_t>(tag), bytes,
                      signature ? *signature : Signature{}};
  sends_[p].push_back({header, data, 0, request});
  push(peer);
  return request;
}

RingEndpoint::Request RingEndpoint::recv(std::byte* data, std::size_t bytes, int peer,
                                         std::uint64_t channel, int tag,
                                         const Signature* signature) {
  const Receive receive{data, bytes, new_request(), signature ? *signature : Signature{}};
  const Key key{peer, channel, tag};
  const auto early = early_.find(key);
  if (early == early_.end()) {
    posted_[key].push_back(receive);
    return receive.request;
  }
  const Early message = std::move(early->second.front());
  early->second.pop_front();
  if (early->second.empty()) early_.erase(early);
  if (!fits(receive, message.header, peer)) return receive.request;
  if (bytes > 0) std::memcpy(data, message.bytes.data(), bytes);
  requests_[receive.request] = State::kDone;
  return receive.request;
}

std::optional<RingEndpoint::Receive> RingEndpoint::take_posted(const Key& key) {
  const auto waiting = posted_.find(key);
  if (waiting == posted_.end()) return std::nullopt;
  const Receive receive = waiting->second.front();
  waiting->second.pop_front();
  if (waiting->second.empty()) posted_.erase(waiting);
  return receive;
}

bool RingEndpoint::fits(const Receive& receive, const Header& header, int peer) {
  if (receive.signature != header.signature) {
    differences_.emplace(receive.request, SignatureDiffers(receive.signature, header.signature));
    requests_[receive.request] = State::kDiffers;
    return false;
  }
  if (receive.bytes != header.bytes)
    throw CommError(fmt::format("message of {} bytes from rank {} where {} were expected",
                                header.bytes, peer, receive.bytes));
  return true;
}

void RingEndpoint::progress() {
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank_) continue;
    push(peer);
    pull(peer);
  }
}

void RingEndpoint::push(int peer) {
  const auto p = static_cast<std::size_t>(peer);
  ByteRing& ring = field_->ring(rank_, peer);
  while (!sends_[p].empty() && !broken_[p]) {
    Send& send = sends_[p].front();
    if (send.written < sizeof(Header)) {
      send.written += ring.write(reinterpret_cast<const std::byte*>(&send.header) + send.written,
                                 sizeof(Header) - send.written);
      if (send.written < sizeof(Header)) return;
    }
    const std::size_t at = send.written - sizeof(Header);
    send.written += ring.write(send.data + at, send.header.bytes - at);
    if (send.written < sizeof(Header) + send.header.bytes) return;
    requests_[send.request] = State::kDone;
    sends_[p].pop_front();
  }
}

void RingEndpoint::begin_message(int peer, Incoming& in) {
  in.read = 0;
  const auto receive = take_posted({peer, in.header.channel, static_cast<int>(in.header.tag)});
  in.refused = receive && !fits(*receive, in.header, peer);
  in.posted = receive && !in.refused;
  if (in.posted) {
    in.target = receive->data;
    in.request = receive->request;
  } else {
    in.kept.assign(in.header.bytes, std::byte{});
    in.target = in.kept.data();
  }
}

void RingEndpoint::end_message(int peer, Incoming& in) {
  if (in.posted) {
    requests_[in.request] = State::kDone;
  } else if (!in.refused) {
    // A receive of this key may have been posted while the message came in: it is the oldest one
    // then.
    const Key key{peer, in.header.channel, static_cast<int>(in.header.tag)};
    const auto receive = take_posted(key);
    if (!receive) {
      early_[key].push_back({in.header, std::move(in.kept)});
    } else if (fits(*receive, in.header, peer)) {
      if (receive->bytes > 0) std::memcpy(receive->data, in.kept.data(), receive->bytes);
      requests_[receive->request] = State::kDone;
    }
  }
  in.kept = {};
  in.target = nullptr;
  in.header_bytes = 0;
}

void RingEndpoint::pull(int peer) {
  ByteRing& ring = field_->ring(peer, rank_);
  Incoming& in = incoming_[static_cast<std::size_t>(peer)];
  while (ring.available() > 0) {
    if (in.header_bytes < sizeof(Header)) {
      in.header_bytes += ring.read(reinterpret_cast<std::byte*>(&in.header) + in.header_bytes,
                                   sizeof(Header) - in.header_bytes);
      if (in.header_bytes < sizeof(Header)) return;
      begin_message(peer, in);
    }
    in.read += ring.read(in.target + in.read, in.header.bytes - in.read);
    if (in.read < in.header.bytes) return;
    end_message(peer, in);
  }
}

bool RingEndpoint::test(Request request) {
  if (requests_[request] == State::kDiffers) {
    const SignatureDiffers difference = differences_.at(request);
    cancel(request);
    throw difference;
  }
  if (requests_[request] != State::kDone) return false;
  requests_[request] = State::kFree;
  free_.push_back(request);
  return true;
}

void RingEndpoint::cancel(Request request) {
  if (requests_[request] == State::kFree) return;
  for (std::size_t p = 0; p < sends_.size(); ++p) {
    auto& queue = sends_[p];
    for (std::size_t i = 0; i < queue.size(); ++i) {
      if (queue[i].request != request) continue;
      // A message that was begun cannot be taken back: its stream ends here.
      if (queue[i].written > 0) broken_[p] = 1;
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  for (auto it = posted_.begin(); it != posted_.end();) {
    std::erase_if(it->second, [&](const Receive& r) { return r.request == request; });
    it = it->second.empty() ? posted_.erase(it) : std::next(it);
  }
  for (Incoming& in : incoming_) {
    if (in.target == nullptr || !in.posted || in.request != request) continue;
    in.kept.assign(in.header.bytes, std::byte{});
    in.target = in.kept.data();
    in.posted = false;
  }
  differences_.erase(request);
  requests_[request] = State::kFree;
  free_.push_back(request);
}

void RingEndpoint::reset() {
  for (auto& queue : sends_) queue.clear();
  for (char& broken : broken_) broken = 0;
  for (Incoming& in : incoming_) in = {};
  posted_.clear();
  early_.clear();
  differences_.clear();
  requests_.clear();
  free_.clear();
  for (int peer = 0; peer < world_size(); ++peer)
    if (peer != rank_) field_->ring(peer, rank_).discard();
}

}  // namespace meshloom::comm
