// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/staging/staged_call.h"

#include <cstdint>
#include <utility>

#include "kernels/backend.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kTwinAlignment = 64;
/// Segments of a device's memory are aligned to this (kernels/base/segment_source.h).
constexpr std::size_t kSegmentAlignment = std::size_t{2} << 20;

std::byte* end_of(const TensorView& view) { return view.as<std::byte>() + view.bytes(); }

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
  lay_out(rank);
  if (reads_inputs(rank))
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (has_twin(inputs_[i])) add_piece(out_, inputs_[i], input_places_[i]);
  if (!writes_outputs(rank)) return;
  // These move data: an output that is an input has it already.
  const CollectiveKind kind = call_.signature.kind;
  const bool moves = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather ||
                     kind == CollectiveKind::kScatter;
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    if (has_twin(outputs_[i]) && !(moves && find_same(outputs_[i], i, rank, inputs_)))
      add_piece(back_, outputs_[i], output_places_[i]);
}

const TensorView* StagedCall::find_same(const TensorView& view, std::size_t number, int rank,
                                        const std::vector<TensorView>& others) {
  for (const std::size_t i : {number, std::size_t{0}, static_cast<std::size_t>(rank)})
    if (i < others.size() && others[i].data == view.data && others[i].bytes() == view.bytes())
      return &others[i];
  return nullptr;
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

void StagedCall::lay_out(int rank) {
  std::byte* last_end = nullptr;  // of the buffer that was placed last
  const auto place = [&](const TensorView& view) -> std::size_t {
    if (!has_twin(view)) return 0;
    if (last_end != view.data)
      block_bytes_ = (block_bytes_ + kTwinAlignment - 1) / kTwinAlignment * kTwinAlignment;
    last_end = end_of(view);
    return std::exchange(block_bytes_, block_bytes_ + view.bytes());
  };
  // Outputs first: they are neighbours more often.
  for (const TensorView& view : outputs_) output_places_.push_back(place(view));
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const TensorView* const same =
        has_twin(inputs_[i]) ? find_same(inputs_[i], i, rank, outputs_) : nullptr;
    input_places_.push_back(same == nullptr
                                ? place(inputs_[i])
                                : output_places_[static_cast<std::size_t>(same - outputs_.data())]);
  }
}

void StagedCall::add_piece(std::vector<Piece>& pieces, const TensorView& view, std::size_t at) {
  // A segment of the device's memory may begin there, which no copy may run into.
  const bool begins = reinterpret_cast<std::uintptr_t>(view.data) % kSegmentAlignment == 0;
  if (!pieces.empty() && !begins) {
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
