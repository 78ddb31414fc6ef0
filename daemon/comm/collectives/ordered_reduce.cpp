// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/collectives/ordered_reduce.h"

#include <algorithm>
#include <cmath>

#include "daemon/comm/group_checks.h"
#include "kernels/base/half.h"

namespace meshloom::comm {
namespace {

// Elements summed at once: accumulators of every type stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;
constexpr std::int64_t kGrain = 32 * kBlock;

template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bfloat16> {
  using type = float;
};
template <>
struct Accumulator<float16> {
  using type = float;
};

/// An operation without an end of its own: what was reduced is the result.
struct AsReduced {
  template <typename A>
  A finish(A reduced, std::size_t) const {
    return reduced;
  }
};

struct Sum : AsReduced {
  template <typename A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) +
                            static_cast<std::make_unsigned_t<A>>(b));
    } else {
      return a + b;
    }
  }
};

struct Avg : Sum {
  template <typename A>
  A finish(A sum, std::size_t ranks) const {
    return sum / static_cast<A>(ranks);
  }
};

struct Prod : AsReduced {
  template <typename A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<A>) {
      // As 64 bits: narrow types would be widened to int, whose overflow is undefined.
      return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

// A NaN on either side wins, so that no rank's NaN is lost.
struct Max : AsReduced {
  template <typename A>
  A operator()(A a, A b) const {
    return a >= b || a != a ? a : b;
  }
};

struct Min : AsReduced {
  template <typename A>
  A operator()(A a, A b) const {
    return a <= b || a != a ? a : b;
  }
};

/// Elements [begin, begin + count), at most kBlock of them.
template <typename T, typename Op>
void reduce_block(T* out, std::span<const void* const> inputs, std::int64_t begin,
                  std::int64_t count) {
  using A = typename Accumulator<T>::type;
  const Op op;
  const std::size_t ranks = inputs.size();
  const auto input = [&](std::size_t r) { return static_cast<const T*>(inputs[r]) + begin; };
  const T* first = input(0);
  T* const to = out + begin;
  if (ranks == 1) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(op.finish(static_cast<A>(first[i]), ranks));
    return;
  }
  const T* second = input(1);
  if (ranks == 2) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] =
          static_cast<T>(op.finish(op(static_cast<A>(first[i]), static_cast<A>(second[i])), ranks));
    return;
  }
  A sums[kBlock];
  for (std::int64_t i = 0; i < count; ++i)
    sums[i] = op(static_cast<A>(first[i]), static_cast<A>(second[i]));
  for (std::size_t r = 2; r < ranks; ++r) {
    const T* next = input(r);
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], static_cast<A>(next[i]));
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(op.finish(sums[i], ranks));
}

/// What is to be reduced.
struct Reduction {
  DType dtype;
  ReduceOp op;
  void* out;
  std::span<const void* const> inputs;
};

template <typename T, typename Op>
void reduce_typed(const Reduction& all, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; i += kBlock)
    reduce_block<T, Op>(static_cast<T*>(all.out), all.inputs, i, std::min(kBlock, end - i));
}

template <typename T>
void reduce_by_op(const Reduction& all, std::int64_t begin, std::int64_t end) {
  switch (all.op) {
    case ReduceOp::kSum: return reduce_typed<T, Sum>(all, begin, end);
    case ReduceOp::kMax: return reduce_typed<T, Max>(all, begin, end);
    case ReduceOp::kMin: return reduce_typed<T, Min>(all, begin, end);
    case ReduceOp::kProd: return reduce_typed<T, Prod>(all, begin, end);
    case ReduceOp::kAvg:
      if constexpr (!std::is_integral_v<T>) reduce_typed<T, Avg>(all, begin, end);
  }
}

inline void reduce_range(const Reduction& all, std::int64_t begin, std::int64_t end) {
  switch (all.dtype) {
    case DType::kFloat32: return reduce_by_op<float>(all, begin, end);
    case DType::kBFloat16: return reduce_by_op<bfloat16>(all, begin, end);
    case DType::kFloat16: return reduce_by_op<float16>(all, begin, end);
    case DType::kFloat64: return reduce_by_op<double>(all, begin, end);
    case DType::kInt64: return reduce_by_op<std::int64_t>(all, begin, end);
    case DType::kInt32: return reduce_by_op<std::int32_t>(all, begin, end);
    case DType::kUInt8: return reduce_by_op<std::uint8_t>(all, begin, end);
    case DType::kBool: return reduce_by_op<bool>(all, begin, end);
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2: break;
  }
}

using RangeLoop = void (*)(const Reduction&, std::int64_t, std::int64_t);

// The same loops, compiled for wider registers. Nothing here is a product followed by a sum, so
// their width changes no bit.
void reduce_range_anywhere(const Reduction& all, std::int64_t begin, std::int64_t end) {
  reduce_range(all, begin, end);
}
#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void reduce_range_avx2(const Reduction& all,
                                                                std::int64_t begin,
                                                                std::int64_t end) {
  reduce_range(all, begin, end);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), flatten)) void reduce_range_avx512(
    const Reduction& all, std::int64_t begin, std::int64_t end) {
  reduce_range(all, begin, end);
}
#endif

RangeLoop widest_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return reduce_range_avx512;
  if (__builtin_cpu_supports("avx2")) return reduce_range_avx2;
#endif
  return reduce_range_anywhere;
}

}  // namespace

void reduce_in_order(Threads threads, DType dtype, ReduceOp op, void* out,
                     std::span<const void* const> inputs, std::int64_t n) {
  check_reducible(dtype, op, "reduce");
  static const RangeLoop loop = widest_loop();
  const Reduction all{dtype, op, out, inputs};
  parallel_for(threads, n, kGrain,
               [&](std::int64_t begin, std::int64_t end) { loop(all, begin, end); });
}

}  // namespace meshloom::comm
