// SPDX-License-Identifier: Apache-2.0
// RankCard: what a rank brings to a fused operation, told to all others before any data moves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/comm/symm_mem/symmetric_group.h"
#include "kernels/base/shape.h"
#include "planner/communication_sizes.h"

namespace meshloom::comm {

/// AgreedValue is something on which all ranks must agree, besides dtype, dims and splits.
struct AgreedValue {
  const char* name;  ///< "gather_dim"
  std::int64_t value;
};

/// RankCard is plain data in the first bytes of each rank's workspace.
struct RankCard {
  static constexpr std::size_t kOpBytes = 64;
  static constexpr std::size_t kMostAgreed = 8;

  char op[kOpBytes] = {};
  std::int32_t dtype = 0;
  std::int32_t ndim = 0;
  std::int32_t free_dim = -1;  ///< where ranks may differ; -1: nowhere
  std::int32_t splits = 1;
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t side = 0;  ///< elements of what goes along with the data
  std::int64_t agreed_count = 0;
  std::int64_t agreed[kMostAgreed] = {};

  Shape shape() const { return Shape({sizes, static_cast<std::size_t>(ndim)}); }
};

/// Bytes of a workspace that cards take; data lies behind them.
inline constexpr std::size_t kCardBytes = planner::kFusedCardBytes;
/// The channel of the barriers of fused operations. Piece i of a shard is signalled on channel i.
inline constexpr int kFusedBarrier = 0;

/// Makes the card that this rank brings; throws InvalidArgument for an op whose name or values do
/// not fit.
RankCard make_card(const char* op, const Shape& shape, DType dtype, int free_dim, int splits,
                   const std::vector<AgreedValue>& agreed);

/// Returns the cards of all, by rank; every rank of the group calls it. Where one does not fit to
/// that of rank 0, all ranks throw InvalidArgument that names it.
std::vector<RankCard> exchange_cards(SymmetricGroup& group, const RankCard& mine,
                                     const std::vector<AgreedValue>& agreed);

/// Throws InvalidArgument, for what all ranks saw alike on the cards. Afterwards the group can be
/// used again.
[[noreturn]] void refuse_together(SymmetricGroup& group, const std::string& text);

}  // namespace meshloom::comm
