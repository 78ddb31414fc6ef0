// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 on vectors: lane j works on block first_block + j. Included once per target after
// hwy/highway.h (the guard toggles). The scalar version and the source are in
// kernels/base/philox.h.
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

/// Word w of lane j is word w of block first_block + j.
struct PhiloxVectors {
  PhiloxV words[4];
};

HWY_INLINE void multiply_wide(PhiloxV a, std::uint32_t b, PhiloxV& low, PhiloxV& high) {
  const PhiloxTag d;
  const hn::RepartitionToWide<PhiloxTag> dw;
  const PhiloxV factor = hn::Set(d, b);
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(dw, a))), factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

HWY_INLINE PhiloxVectors philox_blocks(const PhiloxStream& stream, std::uint64_t first_block) {
  const PhiloxTag d;
  const auto low = static_cast<std::uint32_t>(first_block);
  const PhiloxV start = hn::Set(d, low);
  PhiloxV c0 = hn::Add(start, hn::Iota(d, 0));
  // Lanes whose low word wrapped around carry into the high word.
  const PhiloxV one = hn::Set(d, 1);
  const auto wrapped = hn::Ne(hn::Min(c0, start), start);
  PhiloxV c1 = hn::Add(hn::Set(d, static_cast<std::uint32_t>(first_block >> 32)),
                       hn::IfThenElseZero(wrapped, one));
  PhiloxV c2 = hn::Set(d, static_cast<std::uint32_t>(stream.stream));
  PhiloxV c3 = hn::Set(d, static_cast<std::uint32_t>(stream.stream >> 32));
  auto key0 = static_cast<std::uint32_t>(stream.seed);
  auto key1 = static_cast<std::uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    PhiloxV low0, high0, low1, high1;
    multiply_wide(c0, 0xD2511F53u, low0, high0);
    multiply_wide(c2, 0xCD9E8D57u, low1, high1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// 24 random bits as a float in [0, 1), as philox_uniform.
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
