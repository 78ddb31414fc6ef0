// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/rank_card.h"

#include <cstring>

#include "kernels/base/dtype.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

std::string to_text(const RankCard& card) {
  return fmt::format("{} of {} {} in {} split{}", card.op,
                     dtype_name(static_cast<DType>(card.dtype)), card.shape(), card.splits,
                     card.splits == 1 ? "" : "s");
}

bool shapes_fit(const RankCard& a, const RankCard& b) {
  if (a.ndim != b.ndim || a.free_dim != b.free_dim) return false;
  for (int d = 0; d < a.ndim; ++d)
    if (d != a.free_dim && a.sizes[d] != b.sizes[d]) return false;
  return true;
}

/// Why `card` does not go with `first`; empty where it does.
std::string difference(const RankCard& first, const RankCard& card, int rank,
                       const std::vector<AgreedValue>& agreed) {
  const bool same_op = std::strncmp(first.op, card.op, RankCard::kOpBytes) == 0;
  if (!same_op || first.dtype != card.dtype || first.splits != card.splits ||
      !shapes_fit(first, card) || first.agreed_count != card.agreed_count)
    return fmt::format("{}: rank {} is in {}, rank 0 in {}", first.op, rank, to_text(card),
                       to_text(first));
  for (std::size_t i = 0; i < static_cast<std::size_t>(first.agreed_count); ++i)
    if (first.agreed[i] != card.agreed[i])
      return fmt::format("{}: {} is {} on rank {} and {} on rank 0", first.op,
                         i < agreed.size() ? agreed[i].name : "a value", card.agreed[i], rank,
                         first.agreed[i]);
  return {};
}

}  // namespace

RankCard make_card(const char* op, const Shape& shape, DType dtype, int free_dim, int splits,
                   const std::vector<AgreedValue>& agreed) {
  RankCard card;
  check(std::strlen(op) < RankCard::kOpBytes && agreed.size() <= RankCard::kMostAgreed,
        "{}: a card holds {} letters and {} values", op, RankCard::kOpBytes - 1,
        RankCard::kMostAgreed);
  std::memcpy(card.op, op, std::strlen(op));
  card.dtype = static_cast<std::int32_t>(dtype);
  card.ndim = shape.size();
  card.free_dim = free_dim;
  card.splits = splits;
  for (int d = 0; d < shape.size(); ++d) card.sizes[d] = shape[d];
  card.agreed_count = static_cast<std::int64_t>(agreed.size());
  for (std::size_t i = 0; i < agreed.size(); ++i) card.agreed[i] = agreed[i].value;
  return card;
}

std::vector<RankCard> exchange_cards(SymmetricGroup& group, const RankCard& mine,
                                     const std::vector<AgreedValue>& agreed) {
  static_assert(sizeof(RankCard) <= kCardBytes);
  const auto buffer = group.workspace(kCardBytes);
  const auto place = [&](int rank) {
    return buffer->view(rank, Shape{sizeof(RankCard)}, DType::kUInt8).data;
  };
  std::memcpy(place(group.rank()), &mine, sizeof(RankCard));
  group.barrier(kFusedBarrier);
  std::vector<RankCard> cards(static_cast<std::size_t>(group.size()));
  for (int r = 0; r < group.size(); ++r)
    std::memcpy(&cards[static_cast<std::size_t>(r)], place(r), sizeof(RankCard));
  for (int r = 1; r < group.size(); ++r) {
    const std::string text = difference(cards[0], cards[static_cast<std::size_t>(r)], r, agreed);
    if (!text.empty()) refuse_together(group, text);
  }
  return cards;
}

void refuse_together(SymmetricGroup& group, const std::string& text) {
  // The cards of the next operation are not written before all have read these.
  group.barrier(kFusedBarrier);
  throw InvalidArgument(text);
}

}  // namespace meshloom::comm
