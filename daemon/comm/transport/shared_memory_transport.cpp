// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/transport/shared_memory_transport.h"

#include <numeric>

#include "daemon/comm/group_checks.h"

namespace meshloom::comm {
namespace {

class SharedMemoryTransport : public Transport {
 public:
  /// `members[i]` is member i's rank in the field.
  SharedMemoryTransport(std::shared_ptr<RingEndpoint> endpoint, std::vector<int> members, int rank,
                        std::uint64_t channel)
      : endpoint_(std::move(endpoint)),
        members_(std::move(members)),
        rank_(rank),
        channel_(channel) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  Request send(const std::byte* data, std::size_t bytes, int peer, int tag,
               const Signature* signature) override {
    return endpoint_->send(data, bytes, members_[static_cast<std::size_t>(peer)], channel_, tag,
                           signature);
  }
  Request recv(std::byte* data, std::size_t bytes, int peer, int tag,
               const Signature* signature) override {
    return endpoint_->recv(data, bytes, members_[static_cast<std::size_t>(peer)], channel_, tag,
                           signature);
  }
  void progress() override { endpoint_->progress(); }
  bool test(Request request) override { return endpoint_->test(request); }
  void cancel(Request request) override { endpoint_->cancel(request); }

  std::unique_ptr<Transport> split(const std::vector<std::vector<int>>& parts,
                                   std::uint64_t key) override {
    std::vector<int> members;
    int rank = 0;
    for (const int member : part_of(parts, rank_)) {
      if (member == rank_) rank = static_cast<int>(members.size());
      members.push_back(members_[static_cast<std::size_t>(member)]);
    }
    return std::make_unique<SharedMemoryTransport>(endpoint_, std::move(members), rank, key);
  }
  // All rings were emptied by FailureChannel::drain.
  void renew() override {}

 private:
  std::shared_ptr<RingEndpoint> endpoint_;
  std::vector<int> members_;
  int rank_;
  std::uint64_t channel_;
};

}  // namespace

std::unique_ptr<Transport> make_shared_memory_transport(std::shared_ptr<RingEndpoint> endpoint) {
  const int rank = endpoint->rank();
  std::vector<int> members(static_cast<std::size_t>(endpoint->world_size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<SharedMemoryTransport>(std::move(endpoint), std::move(members), rank, 0);
}

}  // namespace meshloom::comm
