// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/collectives/transport_algorithms.h"

#include "daemon/comm/collectives/move_collectives.h"
#include "daemon/comm/collectives/reduce_collective.h"
#include "daemon/comm/group_checks.h"
#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

constexpr int kUserTag = 1 << 29;

using Piece = Exchange::Piece;

class TransportAlgorithms final : public Algorithms {
 public:
  TransportAlgorithms(std::shared_ptr<Transport> transport, Threads threads)
      : transport_(std::move(transport)), threads_(threads) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }

  std::unique_ptr<Collective> start(const Call& call) override {
    switch (call.signature.kind) {
      case CollectiveKind::kAllReduce: return all_reduce(call);
      case CollectiveKind::kAllGather: return all_gather(call);
      case CollectiveKind::kReduceScatter: return reduce_scatter(call);
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kSendRecv: return exchange(call);
      case CollectiveKind::kBroadcast:
        return std::make_unique<Broadcast>(context(call), memory_of(call.outputs[0]),
                                           call.outputs[0].bytes(), call.signature.root);
      case CollectiveKind::kScatter: return scatter(call);
      case CollectiveKind::kGather: return gather(call);
      case CollectiveKind::kBarrier: return std::make_unique<Barrier>(context(call));
      case CollectiveKind::kSend: return direct(call, {}, {piece(call.inputs[0], call.peer)});
      case CollectiveKind::kRecv: return direct(call, {piece(call.outputs[0], call.peer)}, {});
      case CollectiveKind::kNone: break;
    }
    throw InternalError("a call without a collective");
  }
  void progress() override { transport_->progress(); }

  std::unique_ptr<Algorithms> split(const std::vector<std::vector<int>>& parts,
                                    std::uint64_t key) override {
    return make_transport_algorithms(transport_->split(parts, key), threads_);
  }
  void renew() override { transport_->renew(); }
  void abandon_memory() override { scratch_.abandon(); }

 private:
  CollectiveContext context(const Call& call) {
    return {*transport_, scratch_, *call.bytes_sent, threads_,
            // Two for each.
            static_cast<int>(call.signature.sequence * 2 % kCollectiveTags), call.compared()};
  }

  std::unique_ptr<Collective> all_reduce(const Call& call) {
    const TensorView& data = call.outputs[0];
    const ReduceOp op = call.signature.op;
    if (call.is_one_shot())
      return std::make_unique<OneShotAllReduce>(context(call), memory_of(data), data.numel(),
                                                data.dtype, op);
    ReduceCollective::Job job{{}, nullptr, data.dtype, data.dtype, op, true};
    // One part per rank, by the ceil rule.
    for (int r = 0; r < size(); ++r) {
      const planner::ShardRange range = planner::shard_range(data.numel(), size(), r);
      job.parts.push_back(
          {memory_of(data) + static_cast<std::size_t>(range.begin) * dtype_size(data.dtype),
           range.size()});
    }
    job.sum = job.parts[static_cast<std::size_t>(rank())].data;
    return std::make_unique<ReduceCollective>(context(call), std::move(job));
  }

  std::unique_ptr<Collective> reduce_scatter(const Call& call) {
    const TensorView& output = call.outputs[0];
    ReduceCollective::Job job{{},           memory_of(output), call.signature.dtype,
                              output.dtype, call.signature.op, false};
    for (const TensorView& input : call.inputs)
      job.parts.push_back({memory_of(input), input.numel()});
    return std::make_unique<ReduceCollective>(context(call), std::move(job));
  }

  std::unique_ptr<Collective> all_gather(const Call& call) {
    const TensorView& input = call.inputs[0];
    copy_bytes(call.outputs[static_cast<std::size_t>(rank())], input);
    std::vector<Piece> receives, sends;
    for (int step = 1; step < size(); ++step) {
      const int r = (rank() + step) % size();
      receives.push_back(piece(call.outputs[static_cast<std::size_t>(r)], r));
      sends.push_back(piece(input, r));
    }
    return std::make_unique<Exchange>(context(call), receives, sends);
  }

  std::unique_ptr<Collective> exchange(const Call& call) {
    const auto own = static_cast<std::size_t>(rank());
    copy_bytes(call.outputs[own], call.inputs[own]);
    std::vector<Piece> receives, sends;
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() - step + size()) % size();
      receives.push_back(piece(call.outputs[static_cast<std::size_t>(from)], from));
      sends.push_back(piece(call.inputs[static_cast<std::size_t>(to)], to));
    }
    return std::make_unique<Exchange>(context(call), receives, sends);
  }

  std::unique_ptr<Collective> scatter(const Call& call) {
    const int root = call.signature.root;
    const int next = (rank() + 1) % size(), previous = (rank() - 1 + size()) % size();
    std::vector<Piece> receives, sends;
    // Without data, for the signature.
    if (root != rank()) sends.push_back({nullptr, 0, next});
    if (root != previous) receives.push_back({nullptr, 0, previous});
    if (root == rank()) {
      copy_bytes(call.outputs[0], call.inputs[static_cast<std::size_t>(root)]);
      for (int step = 1; step < size(); ++step) {
        const int r = (root + step) % size();
        sends.push_back(piece(call.inputs[static_cast<std::size_t>(r)], r));
      }
    } else {
      receives.push_back(piece(call.outputs[0], root));
    }
    return std::make_unique<Exchange>(context(call), receives, sends);
  }

  std::unique_ptr<Collective> gather(const Call& call) {
    const int root = call.signature.root;
    const int next = (rank() + 1) % size(), previous = (rank() - 1 + size()) % size();
    std::vector<Piece> receives, sends;
    // Without data, for the signature.
    if (root != rank()) receives.push_back({nullptr, 0, previous});
    if (root != next) sends.push_back({nullptr, 0, next});
    if (root == rank()) {
      copy_bytes(call.outputs[static_cast<std::size_t>(root)], call.inputs[0]);
      for (int step = 1; step < size(); ++step) {
        const int r = (root + step) % size();
        receives.push_back(piece(call.outputs[static_cast<std::size_t>(r)], r));
      }
    } else {
      sends.push_back(piece(call.inputs[0], root));
    }
    return std::make_unique<Exchange>(context(call), receives, sends);
  }

  /// Of sends and receives ranks may have different numbers: they go unsigned, by the user's tag.
  std::unique_ptr<Collective> direct(const Call& call, const std::vector<Piece>& receives,
                                     const std::vector<Piece>& sends) {
    CollectiveContext unsigned_context = context(call);
    unsigned_context.tag = kUserTag + call.tag;
    unsigned_context.signature = {};
    return std::make_unique<Exchange>(unsigned_context, receives, sends);
  }

  std::shared_ptr<Transport> transport_;
  Threads threads_;
  ScratchPool scratch_;
};

}  // namespace

std::unique_ptr<Algorithms> make_transport_algorithms(std::shared_ptr<Transport> transport,
                                                      Threads threads) {
  return std::make_unique<TransportAlgorithms>(std::move(transport), threads);
}

}  // namespace meshloom::comm
