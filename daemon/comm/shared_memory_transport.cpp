// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/shared_memory_transport.h"

#include <sys/mman.h>

#include <new>
#include <numeric>

#include "daemon/comm/group_checks.h"
#include "daemon/comm/ring_endpoint.h"
#include "kernels/base/error.h"

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

std::size_t field_bytes(int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  return sizeof(ByteRing) * ranks * ranks + sizeof(Seat) * ranks + sizeof(FailureBoard);
}

}  // namespace

RingField::RingField(int world_size) : world_size_(world_size) {
  void* memory = mmap(nullptr, field_bytes(world_size), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw ResourceExhausted(fmt::format("no {} bytes of shared memory for {} local ranks",
                                        field_bytes(world_size), world_size));
  // The mapping is zero, which is what an empty ring and an empty board look like; pages are
  // touched when they are used.
  rings_ = static_cast<ByteRing*>(memory);
  seats_ = reinterpret_cast<Seat*>(rings_ + world_size * world_size);
  board_ = reinterpret_cast<FailureBoard*>(seats_ + world_size);
}

RingField::~RingField() { munmap(static_cast<void*>(rings_), field_bytes(world_size_)); }

SharedMemoryRank join_field(const std::shared_ptr<RingField>& field, int rank,
                            std::chrono::milliseconds timeout) {
  std::vector<int> members(static_cast<std::size_t>(field->world_size()));
  std::iota(members.begin(), members.end(), 0);
  auto endpoint = std::make_shared<RingEndpoint>(field, rank);
  return {std::make_unique<SharedMemoryTransport>(endpoint, std::move(members), rank, 0),
          make_shared_memory_failure_channel(field, endpoint, timeout)};
}

}  // namespace meshloom::comm
