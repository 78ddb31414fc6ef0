// SPDX-License-Identifier: Apache-2.0
// What TransportProcessGroup makes of each call: checks, a signature and a state machine.
#include "daemon/comm/collectives/move_collectives.h"
#include "daemon/comm/collectives/reduce_collective.h"
#include "daemon/comm/flight/transport_process_group.h"
#include "daemon/comm/group_checks.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

// Up to here every rank sends all of its data to all: one message time instead of two.
constexpr std::size_t kOneShotBytes = 32 * 1024;

// Sends and receives of the user use the upper half of a transport's tags, collectives the lower.
constexpr int kUserTag = 1 << 29;

std::byte* bytes_of(const TensorView& view) { return static_cast<std::byte*>(view.data); }

/// One part of `data` per rank, by the ceil rule.
std::vector<ReduceCollective::Part> shard_parts(const TensorView& data, int size) {
  std::vector<ReduceCollective::Part> parts;
  for (int r = 0; r < size; ++r) {
    const planner::ShardRange range = planner::shard_range(data.numel(), size, r);
    parts.push_back(
        {bytes_of(data) + static_cast<std::size_t>(range.begin) * dtype_size(data.dtype),
         range.size()});
  }
  return parts;
}

}  // namespace

WorkPtr TransportProcessGroup::all_reduce(const TensorView& data, ReduceOp op) {
  check_usable("all_reduce");
  check_buffer(data, "all_reduce", "data");
  check_reducible(data.dtype, "all_reduce");
  auto flight = take_off("all_reduce", data.bytes());
  Signature signature = make_signature(CollectiveKind::kAllReduce, data.dtype, {&data, 1});
  signature.op = op;
  if (data.bytes() <= kOneShotBytes)
    return launch(flight,
                  std::make_unique<OneShotAllReduce>(context(*flight, signature), bytes_of(data),
                                                     data.numel(), data.dtype, op));
  ReduceCollective::Job job{shard_parts(data, size()), nullptr, data.dtype, op, true};
  job.sum = job.parts[static_cast<std::size_t>(rank())].data;
  return launch(flight,
                std::make_unique<ReduceCollective>(context(*flight, signature), std::move(job)));
}

WorkPtr TransportProcessGroup::reduce_scatter(const TensorView& output,
                                              std::span<const TensorView> inputs, ReduceOp op) {
  check_usable("reduce_scatter");
  check_parts(inputs, size(), output.dtype, "reduce_scatter", "inputs");
  check_buffer(output, "reduce_scatter", "output");
  check_same_size(output, inputs[static_cast<std::size_t>(rank())], "reduce_scatter");
  check_reducible(output.dtype, "reduce_scatter");
  ReduceCollective::Job job{{}, bytes_of(output), output.dtype, op, false};
  std::size_t bytes = 0;
  for (const TensorView& input : inputs) {
    job.parts.push_back({bytes_of(input), input.numel()});
    bytes += input.bytes();
  }
  auto flight = take_off("reduce_scatter", bytes);
  Signature signature = make_signature(CollectiveKind::kReduceScatter, output.dtype, inputs);
  signature.op = op;
  return launch(flight,
                std::make_unique<ReduceCollective>(context(*flight, signature), std::move(job)));
}

WorkPtr TransportProcessGroup::all_gather(std::span<const TensorView> outputs,
                                          const TensorView& input) {
  check_usable("all_gather");
  check_parts(outputs, size(), input.dtype, "all_gather", "outputs");
  check_buffer(input, "all_gather", "input");
  const TensorView& own = outputs[static_cast<std::size_t>(rank())];
  check_same_size(own, input, "all_gather");
  auto flight = take_off("all_gather", input.bytes());
  copy_bytes(own, input);
  std::vector<Exchange::Piece> receives, sends;
  for (int step = 1; step < size(); ++step) {
    const int r = (rank() + step) % size();
    const TensorView& part = outputs[static_cast<std::size_t>(r)];
    receives.push_back({bytes_of(part), part.bytes(), r});
    sends.push_back({bytes_of(input), input.bytes(), r});
  }
  const Signature signature = make_signature(CollectiveKind::kAllGather, input.dtype, outputs);
  return launch(flight, std::make_unique<Exchange>(context(*flight, signature), receives, sends));
}

WorkPtr TransportProcessGroup::exchange(CollectiveKind kind, std::span<const TensorView> outputs,
                                        std::span<const TensorView> inputs) {
  const char* const name = kind_name(kind);
  check_usable(name);
  check(!inputs.empty(), "{}: no inputs", name);
  check_parts(inputs, size(), inputs[0].dtype, name, "inputs");
  check_parts(outputs, size(), inputs[0].dtype, name, "outputs");
  const auto own = static_cast<std::size_t>(rank());
  check_same_size(outputs[own], inputs[own], name);
  std::size_t bytes = 0;
  for (const TensorView& input : inputs) bytes += input.bytes();
  auto flight = take_off(name, bytes);
  copy_bytes(outputs[own], inputs[own]);
  std::vector<Exchange::Piece> receives, sends;
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() - step + size()) % size();
    const TensorView& in = outputs[static_cast<std::size_t>(from)];
    const TensorView& out = inputs[static_cast<std::size_t>(to)];
    receives.push_back({bytes_of(in), in.bytes(), from});
    sends.push_back({bytes_of(out), out.bytes(), to});
  }
  const Signature signature = make_signature(kind, inputs[0].dtype);
  return launch(flight, std::make_unique<Exchange>(context(*flight, signature), receives, sends));
}

WorkPtr TransportProcessGroup::broadcast(const TensorView& data, int root) {
  check_usable("broadcast");
  check_buffer(data, "broadcast", "data");
  check(root >= 0 && root < size(), "broadcast: root {} is not one of {} ranks", root, size());
  auto flight = take_off("broadcast", data.bytes());
  Signature signature = make_signature(CollectiveKind::kBroadcast, data.dtype, {&data, 1});
  signature.root = root;
  return launch(flight, std::make_unique<Broadcast>(context(*flight, signature), bytes_of(data),
                                                    data.bytes(), root));
}

WorkPtr TransportProcessGroup::scatter(const TensorView& output, std::span<const TensorView> inputs,
                                       int root) {
  check_usable("scatter");
  check_buffer(output, "scatter", "output");
  check(root >= 0 && root < size(), "scatter: root {} is not one of {} ranks", root, size());
  std::vector<Exchange::Piece> receives, sends;
  const int next = (rank() + 1) % size(), previous = (rank() - 1 + size()) % size();
  // Without data, for the signature.
  if (root != rank()) sends.push_back({nullptr, 0, next});
  if (root != previous) receives.push_back({nullptr, 0, previous});
  if (root == rank()) {
    check_parts(inputs, size(), output.dtype, "scatter", "inputs");
    const TensorView& own = inputs[static_cast<std::size_t>(rank())];
    check_same_size(output, own, "scatter");
    copy_bytes(output, own);
    for (int step = 1; step < size(); ++step) {
      const int r = (rank() + step) % size();
      const TensorView& part = inputs[static_cast<std::size_t>(r)];
      sends.push_back({bytes_of(part), part.bytes(), r});
    }
  } else {
    receives.push_back({bytes_of(output), output.bytes(), root});
  }
  auto flight = take_off("scatter", output.bytes());
  const Signature signature = make_signature(CollectiveKind::kScatter, output.dtype, root);
  return launch(flight, std::make_unique<Exchange>(context(*flight, signature), receives, sends));
}

WorkPtr TransportProcessGroup::send(const TensorView& data, int destination, int tag) {
  check_usable("send");
  check_buffer(data, "send", "data");
  check_peer("send", destination, rank(), size(), tag);
  ++unmatched_;
  auto flight = take_off("send_recv", data.bytes());
  const CollectiveContext with_tag = context(*flight, kUserTag + tag);
  return launch(flight,
                std::make_unique<Exchange>(
                    with_tag, std::vector<Exchange::Piece>{},
                    std::vector<Exchange::Piece>{{bytes_of(data), data.bytes(), destination}}));
}

WorkPtr TransportProcessGroup::recv(const TensorView& data, int source, int tag) {
  check_usable("recv");
  check_buffer(data, "recv", "data");
  check_peer("recv", source, rank(), size(), tag);
  --unmatched_;
  auto flight = take_off("recv", data.bytes());
  const CollectiveContext with_tag = context(*flight, kUserTag + tag);
  return launch(flight,
                std::make_unique<Exchange>(
                    with_tag, std::vector<Exchange::Piece>{{bytes_of(data), data.bytes(), source}},
                    std::vector<Exchange::Piece>{}));
}

WorkPtr TransportProcessGroup::barrier() {
  check_usable("barrier");
  auto flight = take_off("barrier", 0);
  const Signature signature = make_signature(CollectiveKind::kBarrier, DType{});
  return launch(flight, std::make_unique<Barrier>(context(*flight, signature)));
}

}  // namespace meshloom::comm
