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

template <typename T, typename Op>
void reduce_block(T* out, std::span<const void* const> inputs, std::int64_t begin,
                  std::int64_t count) {
  using A = typename Accumulator<T>::type;
  A sums[kBlock];
  const Op op;
  const T* first = static_cast<const T*>(inputs[0]) + begin;
  for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<A>(first[i]);
  for (std::size_t r = 1; r < inputs.size(); ++r) {
    const T* next = static_cast<const T*>(inputs[r]) + begin;
    for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], static_cast<A>(next[i]));
  }
  for (std::int64_t i = 0; i < count; ++i)
    out[begin + i] = static_cast<T>(op.finish(sums[i], inputs.size()));
}

template <typename T, typename Op>
void reduce_typed(Threads threads, void* out, std::span<const void* const> inputs, std::int64_t n) {
  parallel_for(threads, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kBlock)
      reduce_block<T, Op>(static_cast<T*>(out), inputs, i, std::min(kBlock, end - i));
  });
}

template <typename T>
void reduce_by_op(Threads threads, ReduceOp op, void* out, std::span<const void* const> inputs,
                  std::int64_t n) {
  switch (op) {
    case ReduceOp::kSum: return reduce_typed<T, Sum>(threads, out, inputs, n);
    case ReduceOp::kMax: return reduce_typed<T, Max>(threads, out, inputs, n);
    case ReduceOp::kMin: return reduce_typed<T, Min>(threads, out, inputs, n);
    case ReduceOp::kProd: return reduce_typed<T, Prod>(threads, out, inputs, n);
    case ReduceOp::kAvg:
      if constexpr (!std::is_integral_v<T>) reduce_typed<T, Avg>(threads, out, inputs, n);
  }
}

}  // namespace

void reduce_in_order(Threads threads, DType dtype, ReduceOp op, void* out,
                     std::span<const void* const> inputs, std::int64_t n) {
  check_reducible(dtype, op, "reduce");
  switch (dtype) {
    case DType::kFloat32: return reduce_by_op<float>(threads, op, out, inputs, n);
    case DType::kBFloat16: return reduce_by_op<bfloat16>(threads, op, out, inputs, n);
    case DType::kFloat16: return reduce_by_op<float16>(threads, op, out, inputs, n);
    case DType::kFloat64: return reduce_by_op<double>(threads, op, out, inputs, n);
    case DType::kInt64: return reduce_by_op<std::int64_t>(threads, op, out, inputs, n);
    case DType::kInt32: return reduce_by_op<std::int32_t>(threads, op, out, inputs, n);
    case DType::kUInt8: return reduce_by_op<std::uint8_t>(threads, op, out, inputs, n);
    case DType::kBool: return reduce_by_op<bool>(threads, op, out, inputs, n);
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2: break;
  }
}

}  // namespace meshloom::comm
