// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/staging/staged_call.h"

#include <algorithm>

#include "kernels/backend.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kTwinAlignment = 64;

std::byte* end_of(const TensorView& view) { return view.as<std::byte>() + view.bytes(); }

bool is_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.bytes() == b.bytes();
}

bool has_twin(const TensorView& view) { return view.device != kCpuDevice && view.numel() > 0; }

kernels::KernelContext copy_context(const GroupDevice& device, Threads threads) {
  return {threads, device.stream->get(), nullptr};
}

}  // namespace

StagedCall::StagedCall(const Call& call, int rank)
    : call_(call),
      inputs_(call.inputs.begin(), call.inputs.end()),
      outputs_(call.outputs.begin(), call.outputs.end()) {
  call_.inputs = call_.outputs = {};
  // Outputs first: they are neighbours more often, and an input may be one of them.
  lay_out(outputs_, output_places_);
  lay_out(inputs_, input_places_);
  if (reads_inputs(rank))
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (has_twin(inputs_[i])) add_piece(out_, inputs_[i], input_places_[i]);
  if (!writes_outputs(rank)) return;
  // These move data: an output that is an input has it already.
  const CollectiveKind kind = call_.signature.kind;
  const bool moves = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather ||
                     kind == CollectiveKind::kScatter;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const bool is_input = moves && std::any_of(inputs_.begin(), inputs_.end(), [&](const auto& in) {
                            return is_same(in, outputs_[i]);
                          });
    if (has_twin(outputs_[i]) && !is_input) add_piece(back_, outputs_[i], output_places_[i]);
  }
}

bool StagedCall::reads_inputs(int rank) const {
  const Signature& signature = call_.signature;
  if (signature.kind == CollectiveKind::kBroadcast) return signature.root == rank;
  return signature.kind != CollectiveKind::kRecv;
}

bool StagedCall::writes_outputs(int rank) const {
  const Signature& signature = call_.signature;
  if (signature.kind == CollectiveKind::kBroadcast) return signature.root != rank;
  return signature.kind != CollectiveKind::kSend;
}

void StagedCall::lay_out(const std::vector<TensorView>& views, std::vector<std::size_t>& places) {
  for (const TensorView& view : views) places.push_back(has_twin(view) ? place_of(view) : 0);
}

std::size_t StagedCall::place_of(const TensorView& view) {
  for (const Piece& piece : placed_)
    if (is_same(piece.device, view)) return piece.at;
  const bool follows = !placed_.empty() && end_of(placed_.back().device) == view.data;
  if (!follows)
    block_bytes_ = (block_bytes_ + kTwinAlignment - 1) / kTwinAlignment * kTwinAlignment;
  placed_.push_back({view, block_bytes_});
  block_bytes_ += view.bytes();
  return placed_.back().at;
}

void StagedCall::add_piece(std::vector<Piece>& pieces, const TensorView& view, std::size_t at) {
  if (!pieces.empty()) {
    TensorView& last = pieces.back().device;
    if (end_of(last) == view.data && pieces.back().at + last.bytes() == at) {
      last = make_view(last.data, last.dtype, {last.numel() + view.numel()}, last.device);
      return;
    }
  }
  pieces.push_back({make_view(view.data, view.dtype, {view.numel()}, view.device), at});
}

std::uint64_t StagedCall::copy_out(const GroupDevice& device, Threads threads, std::byte* block) {
  block_ = block;
  std::uint64_t bytes = 0;
  for (const Piece& piece : out_) {
    const TensorView& from = piece.device;
    device.backend->copy_to_host_async(copy_context(device, threads),
                                       make_view(block + piece.at, from.dtype, from.shape), from);
    bytes += from.bytes();
  }
  const auto show_twins = [&](std::vector<TensorView>& views, const std::vector<std::size_t>& at) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (has_twin(views[i])) views[i].data = block + at[i];
      views[i].device = kCpuDevice;
    }
  };
  show_twins(inputs_, input_places_);
  show_twins(outputs_, output_places_);
  return bytes;
}

std::uint64_t StagedCall::copy_back(const GroupDevice& device, Threads threads) const {
  std::uint64_t bytes = 0;
  for (const Piece& piece : back_) {
    const TensorView& to = piece.device;
    device.backend->copy_from_host_async(copy_context(device, threads), to,
                                         make_view(block_ + piece.at, to.dtype, to.shape));
    bytes += to.bytes();
  }
  return bytes;
}

Call StagedCall::host_call() const {
  Call call = call_;
  call.inputs = inputs_;
  call.outputs = outputs_;
  return call;
}

}  // namespace meshloom::comm
