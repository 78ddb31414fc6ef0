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

/// From contributions to the result, or one half of that way.
enum class Stage : std::uint8_t { kWhole, kPartial, kFinish };

/// Registers that the loops below are compiled for.
enum class Registers : std::uint8_t { kAny, kAvx2, kAvx512 };

Registers widest_registers() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return Registers::kAvx512;
  if (__builtin_cpu_supports("avx2")) return Registers::kAvx2;
#endif
  return Registers::kAny;
}

/// What is to be reduced.
struct Reduction {
  DType dtype;
  ReduceOp op;
  void* out;
  std::span<const void* const> inputs;
  std::size_t contributions;  ///< by which averages divide
  Stage stage = Stage::kWhole;
  Registers registers = widest_registers();
};

/// Elements [begin, begin + count), at most kBlock of them.
template <typename In, typename Out, typename Op>
inline void reduce_elements(const Reduction& all, std::int64_t begin, std::int64_t count) {
  using A = typename Accumulator<In>::type;
  const Op op;
  const std::size_t ranks = all.inputs.size(), divisor = all.contributions;
  const auto input = [&](std::size_t r) { return static_cast<const In*>(all.inputs[r]) + begin; };
  const In* first = input(0);
  Out* const to = static_cast<Out*>(all.out) + begin;
  if (ranks == 1) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<Out>(op.finish(static_cast<A>(first[i]), divisor));
    return;
  }
  const In* second = input(1);
  if (ranks == 2) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<Out>(
          op.finish(op(static_cast<A>(first[i]), static_cast<A>(second[i])), divisor));
    return;
  }
  A sums[kBlock];
  for (std::int64_t i = 0; i < count; ++i)
    sums[i] = op(static_cast<A>(first[i]), static_cast<A>(second[i]));
  for (std::size_t r = 2; r < ranks; ++r) {
    const In* next = input(r);
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], static_cast<A>(next[i]));
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Out>(op.finish(sums[i], divisor));
}

// The same loops, compiled for wider registers. Nothing here is a product followed by a sum, so
// their width changes no bit.
#if defined(__x86_64__)
template <typename In, typename Out, typename Op>
__attribute__((target("avx2"), flatten)) void reduce_block_avx2(const Reduction& all,
                                                                std::int64_t begin,
                                                                std::int64_t count) {
  reduce_elements<In, Out, Op>(all, begin, count);
}
template <typename In, typename Out, typename Op>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), flatten)) void reduce_block_avx512(
    const Reduction& all, std::int64_t begin, std::int64_t count) {
  reduce_elements<In, Out, Op>(all, begin, count);
}
#endif

template <typename In, typename Out, typename Op>
void reduce_block(const Reduction& all, std::int64_t begin, std::int64_t count) {
#if defined(__x86_64__)
  if (all.registers == Registers::kAvx512)
    return reduce_block_avx512<In, Out, Op>(all, begin, count);
  if (all.registers == Registers::kAvx2) return reduce_block_avx2<In, Out, Op>(all, begin, count);
#endif
  reduce_elements<In, Out, Op>(all, begin, count);
}

template <typename T, typename Op>
void reduce_typed(const Reduction& all, std::int64_t begin, std::int64_t end) {
  using A = typename Accumulator<T>::type;
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const std::int64_t count = std::min(kBlock, end - i);
    if (std::is_same_v<A, T> || all.stage == Stage::kWhole) {
      reduce_block<T, T, Op>(all, i, count);
    } else if (all.stage == Stage::kPartial) {
      reduce_block<T, A, Op>(all, i, count);
    } else {
      reduce_block<A, T, Op>(all, i, count);
    }
  }
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

void reduce_range(const Reduction& all, std::int64_t begin, std::int64_t end) {
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

void reduce(Threads threads, std::int64_t n, const Reduction& all) {
  check_reducible(all.dtype, all.op, "reduce");
  parallel_for(threads, n, kGrain,
               [&](std::int64_t begin, std::int64_t end) { reduce_range(all, begin, end); });
}

}  // namespace

void reduce_in_order(Threads threads, DType dtype, ReduceOp op, void* out,
                     std::span<const void* const> inputs, std::int64_t n) {
  reduce(threads, n, {dtype, op, out, inputs, inputs.size()});
}

DType partial_dtype(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16 ? DType::kFloat32 : dtype;
}

void reduce_partially(Threads threads, DType dtype, ReduceOp op, void* out,
                      std::span<const void* const> inputs, std::int64_t n) {
  const ReduceOp undivided = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
  reduce(threads, n, {dtype, undivided, out, inputs, inputs.size(), Stage::kPartial});
}

void finish_reduction(Threads threads, DType dtype, ReduceOp op, void* out,
                      std::span<const void* const> partials, std::int64_t n,
                      std::size_t contributions) {
  reduce(threads, n, {dtype, op, out, partials, contributions, Stage::kFinish});
}

}  // namespace meshloom::comm
