// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/signature.h"

#include "kernels/base/hash.h"

namespace meshloom::comm {

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kAvg: return "avg";
    case ReduceOp::kProd: return "prod";
  }
  return "?";
}

const char* kind_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kNone: return "no collective";
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kReduceScatter: return "reduce_scatter";
    case CollectiveKind::kAllToAll: return "all_to_all";
    case CollectiveKind::kSendRecv: return "send_recv";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kScatter: return "scatter";
    case CollectiveKind::kGather: return "gather";
    case CollectiveKind::kBarrier: return "barrier";
    case CollectiveKind::kSend: return "send";
    case CollectiveKind::kRecv: return "recv";
  }
  return "?";
}

const char* counter_name(CollectiveKind kind) {
  const bool direct = kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
  return kind_name(direct ? CollectiveKind::kSendRecv : kind);
}

std::string to_string(const Signature& s) {
  std::string text = fmt::format("{} #{}", kind_name(s.kind), s.sequence);
  if (s.exposes) text += " in place";
  if (s.kind == CollectiveKind::kNone || s.kind == CollectiveKind::kBarrier) return text;
  text += fmt::format(" of {}", dtype_name(s.dtype));
  if (s.kind == CollectiveKind::kAllReduce || s.kind == CollectiveKind::kReduceScatter)
    text += fmt::format(" ({})", reduce_op_name(s.op));
  if (s.root >= 0)
    text += fmt::format(" {} root {}", s.kind == CollectiveKind::kGather ? "to" : "from", s.root);
  if (s.elements >= 0) text += fmt::format(", {} elements", s.elements);
  return text + fmt::format(", {} bytes between the two", s.pair_bytes);
}

Signature make_signature(CollectiveKind kind, DType dtype, int root) {
  Signature signature;
  signature.kind = kind;
  signature.dtype = dtype;
  signature.root = root;
  return signature;
}

Signature make_signature(CollectiveKind kind, DType dtype, std::span<const TensorView> shares) {
  Signature signature = make_signature(kind, dtype);
  signature.elements = 0;
  for (const TensorView& share : shares) {
    signature.elements += share.numel();
    signature.shares = hash_mix(signature.shares, static_cast<std::uint64_t>(share.numel()));
  }
  return signature;
}

SignatureDiffers::SignatureDiffers(const Signature& mine, const Signature& theirs)
    : InternalError(fmt::format("a message of {} came where one of {} was expected",
                                to_string(theirs), to_string(mine)),
                    "COLLECTIVE_MISMATCH"),
      mine_(mine),
      theirs_(theirs) {}

}  // namespace meshloom::comm
