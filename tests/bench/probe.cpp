// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/probe.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

#include "tests/bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/probe.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace meshloom::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: more than any core's latency times its ports, and few enough for 16 registers.
double fma_loop(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f);
  const auto b = hn::Set(d, 0.001f);
  // Chains that start alike would be merged into one by the compiler.
  auto c0 = hn::Iota(d, 0), c1 = hn::Iota(d, 1), c2 = hn::Iota(d, 2), c3 = hn::Iota(d, 3);
  auto c4 = hn::Iota(d, 4), c5 = hn::Iota(d, 5), c6 = hn::Iota(d, 6), c7 = hn::Iota(d, 7);
  auto c8 = hn::Iota(d, 8), c9 = hn::Iota(d, 9), c10 = hn::Iota(d, 10), c11 = hn::Iota(d, 11);
  for (std::int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, a, b);
    c1 = hn::MulAdd(c1, a, b);
    c2 = hn::MulAdd(c2, a, b);
    c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b);
    c5 = hn::MulAdd(c5, a, b);
    c6 = hn::MulAdd(c6, a, b);
    c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b);
    c9 = hn::MulAdd(c9, a, b);
    c10 = hn::MulAdd(c10, a, b);
    c11 = hn::MulAdd(c11, a, b);
  }
  const auto low = hn::Add(hn::Add(c0, c1), hn::Add(c2, c3));
  const auto middle = hn::Add(hn::Add(c4, c5), hn::Add(c6, c7));
  const auto high = hn::Add(hn::Add(c8, c9), hn::Add(c10, c11));
  *sink = hn::GetLane(hn::Add(hn::Add(low, middle), high));
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

void stream_copy(std::byte* dst, const std::byte* src, std::size_t bytes) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* from = reinterpret_cast<const float*>(src);
  auto* to = reinterpret_cast<float*>(dst);
  const std::size_t n = bytes / sizeof(float);
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
    hn::Stream(hn::LoadU(d, from + i + lanes), d, to + i + lanes);
    hn::Stream(hn::LoadU(d, from + i + 2 * lanes), d, to + i + 2 * lanes);
    hn::Stream(hn::LoadU(d, from + i + 3 * lanes), d, to + i + 3 * lanes);
  }
  hwy::FlushStream();
  std::memcpy(to + i, from + i, bytes - i * sizeof(float));
}

// Reads the floats by so many streams side by side, each with a part of its own. Returns a sum, so
// that the loads stay.
float stream_read(const float* from, std::size_t count, std::size_t streams) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t part = count / streams / (4 * lanes) * (4 * lanes);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  for (std::size_t i = 0; i < part; i += 4 * lanes)
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const float* p = from + stream * part + i;
      s0 = hn::Add(s0, hn::LoadU(d, p));
      s1 = hn::Add(s1, hn::LoadU(d, p + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, p + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, p + 3 * lanes));
    }
  return hn::GetLane(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshloom::bench {
namespace {

HWY_EXPORT(fma_loop);
HWY_EXPORT(stream_copy);
HWY_EXPORT(stream_read);

constexpr std::size_t kCopyBytes = std::size_t{256} << 20;

using Loop = double (*)(std::int64_t rounds, float* sink);

// Runs the loop on all threads in short rounds until `seconds` have passed; the best round counts.
double best_rate(Threads threads, double seconds, std::int64_t rounds, Loop loop) {
  const auto start = Clock::now();
  double best = 0.0;
  do {
    std::atomic<double> operations{0.0};
    const auto begin = Clock::now();
    parallel_for(threads, threads.count, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        float sink = 0.0f;
        double done = loop(rounds, &sink);
        if (sink != sink) done = 0.0;
        operations.fetch_add(done);
      }
    });
    best = std::max(best, operations.load() / seconds_since(begin));
  } while (seconds_since(start) < seconds);
  return best;
}

double fma_once(std::int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_loop)(rounds, sink);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bf16"))) double dot_once(std::int64_t rounds, float* sink) {
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00);
  __m512 c[12];
  for (int k = 0; k < 12; ++k) c[k] = _mm512_set1_ps(static_cast<float>(k));
  for (std::int64_t i = 0; i < rounds; ++i) {
    // Unrolled, the array lives in registers.
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) c[k] = _mm512_dpbf16_ps(c[k], a, a);
  }
  for (int k = 1; k < 12; ++k) c[0] = _mm512_add_ps(c[0], c[k]);
  float lanes[16];
  _mm512_storeu_ps(lanes, c[0]);
  *sink = lanes[0];
  return 2.0 * 32.0 * 12.0 * static_cast<double>(rounds);
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Four 16 x 16 float32 accumulators, products of 16 x 32 bfloat16 tiles.
__attribute__((target("amx-tile,amx-bf16"))) double tile_once(std::int64_t rounds, float* sink) {
  TileConfig config;
  std::fill(config.column_bytes, config.column_bytes + 8, std::uint16_t{64});
  std::fill(config.rows, config.rows + 8, std::uint8_t{16});
  // GCC 12's intrinsic says that it reads eight bytes: without this the compiler drops the stores
  // to the other 56.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  *sink = 0.0f;
  return 4.0 * 2.0 * 16.0 * 16.0 * 32.0 * static_cast<double>(rounds);
}

// CPUID leaf 7, edx bits 22 (AMX-BF16) and 24 (AMX-TILE), and the kernel's permission to use tile
// data.
bool tiles_allowed() {
  std::uint32_t eax = 7, ebx = 0, ecx = 0, edx = 0;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  if ((edx >> 22 & 1u) == 0 || (edx >> 24 & 1u) == 0) return false;
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Loop bfloat16_loop() {
  if (tiles_allowed()) return tile_once;
  return __builtin_cpu_supports("avx512bf16") ? dot_once : nullptr;
}
#else
Loop bfloat16_loop() { return nullptr; }
#endif

}  // namespace

double fma_flops_per_second(Threads threads, double seconds) {
  return best_rate(threads, seconds, 200'000, fma_once);
}

double bfloat16_flops_per_second(Threads threads, double seconds) {
  const Loop loop = bfloat16_loop();
  return loop == nullptr ? 0.0 : best_rate(threads, seconds, 200'000, loop);
}

double copy_seconds(Threads threads, CopyKind kind, std::byte* dst, const std::byte* src,
                    std::size_t bytes) {
  constexpr std::int64_t kLine = 64;
  const auto lines = static_cast<std::int64_t>(bytes) / kLine;
  const auto start = Clock::now();
  parallel_for(threads, lines, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t n = static_cast<std::size_t>(end - begin) * kLine;
    if (kind == CopyKind::kPlain)
      std::memcpy(dst + begin * kLine, src + begin * kLine, n);
    else
      HWY_DYNAMIC_DISPATCH(stream_copy)(dst + begin * kLine, src + begin * kLine, n);
  });
  return seconds_since(start);
}

namespace {

struct ReleaseBuffer {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<std::byte[], ReleaseBuffer>;

Buffer touched_buffer() {
  auto* p = static_cast<std::byte*>(::operator new[](kCopyBytes, std::align_val_t{64}));
  std::memset(p, 1, kCopyBytes);
  return Buffer(p);
}

}  // namespace

double copy_bytes_per_second(Threads threads, CopyKind kind) {
  const Buffer src = touched_buffer(), dst = touched_buffer();
  double best = 0.0;
  for (int i = 0; i < 5; ++i)
    best = std::max(
        best, 2.0 * kCopyBytes / copy_seconds(threads, kind, dst.get(), src.get(), kCopyBytes));
  return best;
}

double read_bytes_per_second(Threads threads) {
  const Buffer buffer = touched_buffer();
  const auto* floats = reinterpret_cast<const float*>(buffer.get());
  constexpr std::int64_t kFloats = kCopyBytes / sizeof(float);
  double best = 0.0;
  for (int i = 0; i < 5; ++i)
    for (const std::size_t streams : {1, 2, 4}) {
      std::atomic<float> sum{0.0f};
      const auto start = Clock::now();
      parallel_for(threads, kFloats, 1, [&](std::int64_t begin, std::int64_t end) {
        sum.fetch_add(HWY_DYNAMIC_DISPATCH(stream_read)(
            floats + begin, static_cast<std::size_t>(end - begin), streams));
      });
      if (sum.load() > 0.0f) best = std::max(best, kCopyBytes / seconds_since(start));
    }
  return best;
}

}  // namespace meshloom::bench
#endif  // HWY_ONCE
