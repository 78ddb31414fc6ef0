// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 on vectors. Included once per target after hwy/highway.h (the guard toggles). The
// scalar version and the source are in kernels/base/philox.h.
#if defined(MESHLOOM_KERNELS_CPU_SIMD_PHILOX_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_SIMD_PHILOX_H_
#undef MESHLOOM_KERNELS_CPU_SIMD_PHILOX_H_
#else
#define MESHLOOM_KERNELS_CPU_SIMD_PHILOX_H_
#endif

#include <hwy/highway.h>

#include "kernels/base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {

namespace hn = hwy::HWY_NAMESPACE;

using PhiloxTag = hn::ScalableTag<std::uint32_t>;
using PhiloxV = hn::Vec<PhiloxTag>;

/// PhiloxKeys holds the keys of the ten rounds.
struct PhiloxKeys {
  std::uint32_t first[10], second[10];
};

HWY_INLINE PhiloxKeys philox_keys(const PhiloxStream& stream) {
  PhiloxKeys keys;
  auto first = static_cast<std::uint32_t>(stream.seed);
  auto second = static_cast<std::uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    keys.first[round] = first;
    keys.second[round] = second;
    first += 0x9E3779B9u;
    second += 0xBB67AE85u;
  }
  return keys;
}

/// PhiloxHalf is half a vector of blocks: word w of a block is the low half of a 64-bit lane of
/// words[w], where the multiplication of 32 by 32 bits wants it; the high halves mean nothing.
struct PhiloxHalf {
  PhiloxV words[4];
};

/// Does the ten rounds, on several halves at once: one alone would wait for its multiplications.
template <int kHalves>
HWY_INLINE void philox_rounds(const PhiloxKeys& keys, PhiloxHalf (&halves)[kHalves]) {
  const PhiloxTag d;
  const PhiloxV factor0 = hn::Set(d, 0xD2511F53u), factor1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const PhiloxV key0 = hn::Set(d, keys.first[round]);
    const PhiloxV key1 = hn::Set(d, keys.second[round]);
    HWY_UNROLL(4)
    for (int h = 0; h < kHalves; ++h) {
      PhiloxV(&c)[4] = halves[h].words;
      const auto product0 = hn::MulEven(c[0], factor0);
      const auto product1 = hn::MulEven(c[2], factor1);
      c[0] = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(product1)), c[1], key0);
      c[2] = hn::Xor3(hn::BitCast(d, hn::ShiftRight<32>(product0)), c[3], key1);
      c[1] = hn::BitCast(d, product1);
      c[3] = hn::BitCast(d, product0);
    }
  }
}

/// Joins two vectors in whose 64-bit lanes the low halves count: `low` in the low halves, `high` in
/// the high ones.
HWY_INLINE PhiloxV join_halves(PhiloxV low, PhiloxV high) {
  const PhiloxTag d;
  const hn::RepartitionToWide<PhiloxTag> dw;
  return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(dw, high))), low);
}

/// Word w of lane j is word w of the block that lane j asks for.
struct PhiloxVectors {
  PhiloxV words[4];
};

/// Returns blocks, of which lane j is block high[j] * 2^32 + low[j].
HWY_INLINE PhiloxVectors philox_blocks_at(const PhiloxKeys& keys, std::uint64_t stream, PhiloxV low,
                                          PhiloxV high) {
  const PhiloxTag d;
  const hn::RepartitionToWide<PhiloxTag> dw;
  const PhiloxV c2 = hn::Set(d, static_cast<std::uint32_t>(stream));
  const PhiloxV c3 = hn::Set(d, static_cast<std::uint32_t>(stream >> 32));
  const auto odd = [d, dw](PhiloxV v)
                       HWY_ATTR { return hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(dw, v))); };
  PhiloxHalf halves[2] = {{{low, high, c2, c3}}, {{odd(low), odd(high), c2, c3}}};
  philox_rounds(keys, halves);
  PhiloxVectors out;
  HWY_UNROLL(4)
  for (int w = 0; w < 4; ++w) out.words[w] = join_halves(halves[0].words[w], halves[1].words[w]);
  return out;
}

/// Halves that are worked on at once where their order is free.
inline constexpr int kPhiloxHalves = HWY_TARGET == HWY_AVX3 ? 4 : 2;

/// Blocks of one half.
HWY_INLINE std::size_t philox_half_blocks() { return hn::Lanes(PhiloxTag()) / 2; }

/// Fills kPhiloxHalves halves of consecutive blocks from `first_block` on. Within a half 64-bit
/// lane 2 i holds block i and lane 2 i + 1 block i of the upper half of its blocks: interleaving
/// then gives the sequence's order.
HWY_INLINE void philox_halves(const PhiloxKeys& keys, std::uint64_t stream,
                              std::uint64_t first_block, PhiloxHalf (&halves)[kPhiloxHalves]) {
  const PhiloxTag d;
  const hn::RepartitionToWide<PhiloxTag> dw;
  const std::size_t blocks = philox_half_blocks();
  const auto iota = hn::Iota(dw, 0);
  const auto upper = hn::IfThenElseZero(hn::TestBit(iota, hn::Set(dw, 1)),
                                        hn::Set(dw, static_cast<std::uint64_t>(blocks / 2)));
  const auto order = hn::Add(hn::ShiftRight<1>(iota), upper);
  HWY_UNROLL(4)
  for (int h = 0; h < kPhiloxHalves; ++h) {
    const auto index = hn::Add(order, hn::Set(dw, first_block + h * blocks));
    halves[h] = {{hn::BitCast(d, index), hn::BitCast(d, hn::ShiftRight<32>(index)),
                  hn::Set(d, static_cast<std::uint32_t>(stream)),
                  hn::Set(d, static_cast<std::uint32_t>(stream >> 32))}};
  }
  philox_rounds(keys, halves);
}

/// Returns 24 random bits as a float in [0, 1), as philox_uniform.
HWY_INLINE hn::Vec<hn::ScalableTag<float>> to_uniform(PhiloxV bits) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<std::int32_t> di;
  const auto whole = hn::BitCast(di, hn::ShiftRight<8>(bits));
  return hn::Mul(hn::ConvertTo(df, whole), hn::Set(df, 0x1p-24f));
}

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
