// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/op_call.h"

namespace meshloom::planner {

const char* op_name(OpId op) {
  switch (op) {
    case OpId::kUnaryLinear: return "unary_linear";
    case OpId::kUnary: return "unary";
    case OpId::kAdd: return "add/sub";
    case OpId::kMul: return "mul";
    case OpId::kDiv: return "div";
    case OpId::kWhere: return "where";
    case OpId::kMaskedFill: return "masked_fill";
    case OpId::kDropout: return "dropout";
    case OpId::kSwiglu: return "swiglu";
    case OpId::kTri: return "triu/tril";
    case OpId::kSum: return "sum";
    case OpId::kMean: return "mean";
    case OpId::kAmax: return "amax";
    case OpId::kVar: return "var";
    case OpId::kSoftmax: return "softmax";
    case OpId::kLogSoftmax: return "log_softmax";
    case OpId::kNorm: return "layer_norm/rms_norm";
    case OpId::kAddNorm: return "add_layer_norm/add_rms_norm";
    case OpId::kMatmul: return "matmul";
    case OpId::kBmm: return "bmm";
    case OpId::kAddmm: return "addmm";
    case OpId::kLinear: return "linear";
    case OpId::kEmbedding: return "embedding";
    case OpId::kCrossEntropy: return "cross_entropy";
    case OpId::kLinearCrossEntropy: return "linear_cross_entropy";
    case OpId::kAttention: return "scaled_dot_product_attention";
    case OpId::kRope: return "rope";
    case OpId::kTranspose: return "transpose";
    case OpId::kPermute: return "permute";
    case OpId::kReshape: return "reshape";
    case OpId::kUnsqueeze: return "unsqueeze";
    case OpId::kSqueeze: return "squeeze";
    case OpId::kSlice: return "slice";
    case OpId::kSplit: return "split";
    case OpId::kCat: return "cat";
    case OpId::kExpand: return "expand";
    case OpId::kContiguous: return "contiguous";
    case OpId::kAttentionRows: return "attention_of_rows";
  }
  return "unknown op";
}

}  // namespace meshloom::planner
