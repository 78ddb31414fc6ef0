// SPDX-License-Identifier: Apache-2.0
// Signature: what a rank takes a collective to be. It travels with the first message between two
// ranks, and a receiver compares it with its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "daemon/comm/process_group.h"
#include "kernels/base/error.h"

namespace meshloom::comm {

enum class CollectiveKind : std::uint8_t {
  kNone,  ///< of a message that carries no signature
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSendRecv,
  kBroadcast,
  kScatter,
  kGather,
  kBarrier,
  kSend,  ///< of a user, as kRecv: without a signature, since ranks may have different numbers
  kRecv,
};
inline constexpr std::size_t kCollectiveKinds = static_cast<std::size_t>(CollectiveKind::kRecv) + 1;

const char* kind_name(CollectiveKind);
/// Returns the name that calls of this kind are counted under: sends and receives are messages of
/// "send_recv".
const char* counter_name(CollectiveKind);

/// A Signature is the same on all ranks of a group that are in the same collective, but for
/// pair_bytes. Travels as it lies in memory, without gaps.
struct Signature {
  std::uint64_t sequence = 0;  ///< how many collectives of the group came before
  std::int64_t elements = -1;  ///< over all ranks; -1 if a rank knows its own alone
  /// Digest of the elements of every rank; of an exposure the number of views.
  std::uint64_t shares = 0;
  std::int64_t pair_bytes = -1;  ///< what goes from the one rank to the other
  std::int32_t root = -1;
  CollectiveKind kind = CollectiveKind::kNone;
  DType dtype{};
  ReduceOp op{};
  bool exposes = false;  ///< views are shown, and nothing is moved

  bool operator==(const Signature&) const = default;
};
static_assert(sizeof(Signature) == 40);

/// Returns "all_gather #12 of float32, 4096 elements, 640 bytes between the two".
std::string to_string(const Signature&);

/// `shares` are those of all ranks; or all of the data, if every rank has all.
Signature make_signature(CollectiveKind, DType, std::span<const TensorView> shares);
/// Makes the signature of a collective in which a rank knows its own shares alone, or that has no
/// data.
Signature make_signature(CollectiveKind, DType, int root = -1);

/// It is thrown if a message belongs to another collective than the receive that it met.
class SignatureDiffers : public InternalError {
 public:
  SignatureDiffers(const Signature& mine, const Signature& theirs);
  const Signature& mine() const { return mine_; }
  const Signature& theirs() const { return theirs_; }
  /// Returns the rank of the group that sent `theirs`; -1 if not known yet.
  int peer() const { return peer_; }
  void set_peer(int peer) { peer_ = peer; }

 private:
  Signature mine_, theirs_;
  int peer_ = -1;
};

}  // namespace meshloom::comm
