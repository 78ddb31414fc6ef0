// SPDX-License-Identifier: Apache-2.0
// Reductions over any dims.
#include "kernels/cuda/reduce_launch.h"

#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/vectors.h"
#include "kernels/cuda/reduce_terms.h"
#include "kernels/cuda/strided_plan.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Elements that a thread, for each of its accumulators, folds before it joins them.
constexpr int kFolded = 64;
// Elements of a row that a group of lanes has at least to itself.
constexpr std::int64_t kLeastPart = 2048;
constexpr std::int64_t kMostRowParts = 16384;
// Rows of which the threads of a block fold one column: kFolded each at most.
constexpr std::int64_t kMostRows = kWarps * kFolded;
constexpr std::int64_t kLeastRows = 32;
constexpr std::int64_t kColumnBlocks = 1024;

// Kept dims are of x and y, reduced ones of x.
struct ReducePlan {
  StridedPlan<2> kept;
  StridedPlan<1> reduced;
};

// The elements of each output are split into parts, whose results lie in `partials`: those of
// neighbours in a block side by side.
struct Split {
  std::int64_t outputs, parts;
  std::int64_t chunk;    ///< elements of a part
  int lanes;             ///< of a warp that work on a part together: a power of 2
  bool columns = false;  ///< partials [parts, outputs], else [outputs, parts]

  __device__ __forceinline__ std::int64_t partial(std::int64_t output, std::int64_t part) const {
    return columns ? part * outputs + output : output * parts + part;
  }
};

ReducePlan make_reduce_plan(const DeviceView& y, const DeviceView& x) {
  ReducePlan plan;
  int order[DeviceView::kMostDims];
  int count = ordered_dims(x, order, [&](int dim) { return y.sizes[dim] != 1; });
  for (int i = 0; i < count; ++i) {
    const std::int64_t strides[2] = {x.strides[order[i]], y.strides[order[i]]};
    append_dim(plan.kept, x.sizes[order[i]], strides);
  }
  count = ordered_dims(x, order, [&](int dim) { return y.sizes[dim] == 1; });
  for (int i = 0; i < count; ++i) {
    const std::int64_t strides[1] = {x.strides[order[i]]};
    append_dim(plan.reduced, x.sizes[order[i]], strides);
  }
  // A single reduced element is as good as dense.
  if (count == 0) plan.reduced.strides[0][0] = 1;
  finish_plan(plan.kept);
  finish_plan(plan.reduced);
  plan.kept.data[0] = plan.reduced.data[0] = x.data;
  plan.kept.dtypes[0] = plan.reduced.dtypes[0] = x.dtype;
  plan.kept.data[1] = y.data;
  plan.kept.dtypes[1] = y.dtype;
  return plan;
}

bool is_typed(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

// Neighbouring outputs are neighbours in x, and the elements of one are not.
bool by_columns(const ReducePlan& plan) {
  return is_typed(plan.kept.dtypes[0]) && plan.kept.row_stride(0) == 1 &&
         plan.reduced.row_stride(0) != 1;
}

// Elements that a lane loads at once where rows are aligned.
int vector_of(DType dtype) {
  return dtype == DType::kFloat32 ? 4 : dtype == DType::kBFloat16 ? 8 : 1;
}

// Whether the elements of an output lie side by side.
bool dense_rows(const ReducePlan& plan) {
  return plan.reduced.dims == 1 && plan.reduced.row_stride(0) == 1;
}

// Whether what a vector is loaded from begins at multiples of one: outputs' elements, or (with
// `columns`) rows of neighbouring outputs.
bool rows_are_aligned(const ReducePlan& plan, bool columns) {
  const std::size_t bytes = plan.kept.dtypes[0] == DType::kFloat32 ? 4 : 2;
  if (!vectors_fit(plan.kept.data[0], 0, bytes)) return false;
  for (int d = 0; d < plan.kept.dims - (columns ? 1 : 0); ++d)
    if (!vectors_fit(nullptr, plan.kept.strides[0][d], bytes)) return false;
  for (int d = 0; columns && d < plan.reduced.dims; ++d)
    if (!vectors_fit(nullptr, plan.reduced.strides[0][d], bytes)) return false;
  return true;
}

std::int64_t clamped(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value < low ? low : value < high ? value : high;
}

int lanes_for(std::int64_t elements, int each) {
  int lanes = 1;
  while (lanes < kWarp && lanes * each < elements) lanes *= 2;
  return lanes;
}

Split split_rows(const ReducePlan& plan) {
  const int vector = vector_of(plan.kept.dtypes[0]);
  const std::int64_t n = plan.reduced.numel;
  Split split;
  split.outputs = plan.kept.numel;
  const std::int64_t most = clamped(kMostRowParts / split.outputs, 1, kMostRowParts);
  const std::int64_t parts = clamped(divide_up(n, kLeastPart), 1, most);
  split.chunk = round_up(clamped(divide_up(n, parts), 1, n), static_cast<std::int64_t>(kWarp * 8));
  split.parts = clamped(divide_up(n, split.chunk), 1, parts);
  split.lanes = lanes_for(n < split.chunk ? n : split.chunk, 2 * vector);
  return split;
}

std::int64_t column_blocks(const ReducePlan& plan, int vector) {
  return divide_up<std::int64_t>(plan.kept.row_size(), kWarp * vector);
}

Split split_columns(const ReducePlan& plan) {
  const std::int64_t n = plan.reduced.numel;
  const std::int64_t blocks =
      plan.kept.numel / plan.kept.row_size() * column_blocks(plan, vector_of(plan.kept.dtypes[0]));
  Split split{plan.kept.numel, 1, kMostRows, kWarp, true};
  const std::int64_t wanted = clamped(kColumnBlocks / blocks, 1, divide_up(n, kLeastRows));
  const std::int64_t least = divide_up(n, kMostRows);
  split.chunk = clamped(divide_up(n, least < wanted ? wanted : least), 1, kMostRows);
  split.parts = divide_up(n, split.chunk);
  return split;
}

Split split_of(const ReducePlan& plan) {
  // Without elements the rows' kernel writes what each output starts from.
  return by_columns(plan) && plan.reduced.numel > 0 ? split_columns(plan) : split_rows(plan);
}

// Every lane of the warp calls it; `lanes` neighbours join their values.
template <class A>
__device__ __forceinline__ A join_lanes(Term term, A value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    value = join(term, value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

// A group of lanes for every part of every output. With kVector > 1 the elements of an output are
// dense and T's. Whether they are aligned does not change the order of the sum.
template <class Elements, class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    reduce_rows(const __grid_constant__ ReducePlan plan, Split split, Term term, bool aligned,
                const double* centers, typename Elements::Joined* partials) {
  using Folded = typename Elements::Folded;
  using Joined = typename Elements::Joined;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % split.lanes;
  const std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / split.lanes) + thread / split.lanes;
  const bool works = group < split.outputs * split.parts;
  const std::int64_t output = works ? group / split.parts : 0;
  const std::int64_t begin = works ? (group - output * split.parts) * split.chunk : 0;
  const std::int64_t n = plan.reduced.numel;
  const std::int64_t end = !works ? begin : begin + split.chunk < n ? begin + split.chunk : n;
  std::int64_t base[2];
  locate(plan.kept, output, base);
  const Folded center =
      works && centers != nullptr ? static_cast<Folded>(centers[output]) : Folded(0);

  Joined total = start_of<Joined>(term);
  const std::int64_t step = split.lanes * kVector;
  std::int64_t i = begin + lane * kVector;
  if constexpr (std::is_same_v<Folded, Joined>) {
    for (; i < end; i += step) {
      std::int64_t at[1];
      locate(plan.reduced, i, at);
      total = fold(term, total,
                   Elements::load(plan.reduced.data[0], plan.reduced.dtypes[0], base[0] + at[0]),
                   center);
    }
  } else {
    while (i < end) {
      Folded folded[kVector];
      for (int v = 0; v < kVector; ++v) folded[v] = start_of<Folded>(term);
      for (int k = 0; k < kFolded && i < end; ++k, i += step) {
        if constexpr (kVector > 1) {
          const T* from = static_cast<const T*>(plan.reduced.data[0]) + base[0] + i;
          if (aligned && i + kVector <= end) {
            const Vector<T> vector = load_vector(from);
            for (int v = 0; v < kVector; ++v)
              folded[v] = fold(term, folded[v], to_compute(vector[v]), center);
          } else {
            for (int v = 0; v < kVector; ++v)
              if (i + v < end) folded[v] = fold(term, folded[v], to_compute(from[v]), center);
          }
        } else {
          std::int64_t at[1];
          locate(plan.reduced, i, at);
          folded[0] =
              fold(term, folded[0],
                   Elements::load(plan.reduced.data[0], plan.reduced.dtypes[0], base[0] + at[0]),
                   center);
        }
      }
      for (int v = 0; v < kVector; ++v) total = join(term, total, static_cast<Joined>(folded[v]));
    }
  }
  total = join_lanes(term, total, split.lanes);
  if (works && lane == 0) partials[group] = total;
}

// A block for 32 * kVector neighbouring outputs and one part of their rows: a lane has kVector of
// the columns, a warp every eighth row.
template <class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    reduce_columns(const __grid_constant__ ReducePlan plan, Split split, Term term,
                   const double* centers, double* partials) {
  constexpr int kColumns = kWarp * kVector;
  MESHLOOM_SHARED(shared, float[kWarps][kColumns]);
  const std::int64_t width = plan.kept.row_size();
  const std::int64_t across = divide_up<std::int64_t>(width, kColumns);
  const std::int64_t first_column = blockIdx.x % across * kColumns;
  const std::int64_t part = blockIdx.x / across % split.parts;
  const std::int64_t first_output = blockIdx.x / across / split.parts * width + first_column;
  const int own = static_cast<int>(threadIdx.x % kWarp) * kVector;
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const std::int64_t left = width - first_column - own;
  const int count = left < kVector ? (left < 0 ? 0 : static_cast<int>(left)) : kVector;

  float folded[kVector], center[kVector];
  for (int v = 0; v < kVector; ++v) {
    folded[v] = start_of<float>(term);
    center[v] = centers != nullptr && v < count
                    ? static_cast<float>(centers[first_output + own + v])
                    : 0.0f;
  }
  if (count > 0) {
    std::int64_t base[2];
    locate(plan.kept, first_output + own, base);
    const std::int64_t begin = part * split.chunk, n = plan.reduced.numel;
    const std::int64_t end = begin + split.chunk < n ? begin + split.chunk : n;
    for (std::int64_t row = begin + warp; row < end; row += kWarps) {
      std::int64_t at[1];
      locate(plan.reduced, row, at);
      const T* from = static_cast<const T*>(plan.reduced.data[0]) + base[0] + at[0];
      if (kVector > 1 && count == kVector) {
        const Vector<T, kVector> vector = *reinterpret_cast<const Vector<T, kVector>*>(from);
        for (int v = 0; v < kVector; ++v)
          folded[v] = fold(term, folded[v], to_compute(vector[v]), center[v]);
      } else {
        for (int v = 0; v < kVector; ++v)
          if (v < count) folded[v] = fold(term, folded[v], to_compute(from[v]), center[v]);
      }
    }
  }
  for (int v = 0; v < kVector; ++v) shared[warp][own + v] = folded[v];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kColumns || first_column + column >= width) return;
  double total = shared[0][column];
  for (int w = 1; w < kWarps; ++w) total = join<double>(term, total, shared[w][column]);
  partials[split.partial(first_output + column, part)] = total;
}

// How the joined parts become the result.
struct Finish {
  ReduceOp op;
  std::int64_t n;
  double correction;

  __device__ __forceinline__ double operator()(double value) const {
    if (op == ReduceOp::kMean) return value / static_cast<double>(n);
    const double divisor = static_cast<double>(n) - correction;
    return op == ReduceOp::kVar ? value / (divisor > 0.0 ? divisor : 0.0) : value;
  }
  __device__ __forceinline__ std::int64_t operator()(std::int64_t value) const { return value; }
};

// A group of lanes for every output. `kept` says where the outputs lie: view 1.
template <class Joined>
__global__ void __launch_bounds__(kThreads)
    join_parts(const __grid_constant__ StridedPlan<2> kept, Split split, Term term,
               const Joined* partials, Finish finish) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % split.lanes;
  const std::int64_t output =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / split.lanes) + thread / split.lanes;
  const bool works = output < split.outputs;
  Joined total = start_of<Joined>(term);
  if (works)
    for (std::int64_t part = lane; part < split.parts; part += split.lanes)
      total = join(term, total, partials[split.partial(output, part)]);
  total = join_lanes(term, total, split.lanes);
  if (!works || lane != 0) return;
  std::int64_t at[2];
  locate(kept, output, at);
  store_any(kept.dtypes[1], kept.data[1], at[1], finish(total));
}

template <class T>
void launch_typed_parts(const ReducePlan& plan, const Split& split, Term term,
                        const double* centers, double* partials, cudaStream_t stream) {
  constexpr int kVector = kVectorElements<T>;
  if (by_columns(plan) && plan.reduced.numel > 0) {
    const bool vectors = rows_are_aligned(plan, true);
    const std::int64_t blocks = plan.kept.numel / plan.kept.row_size() * split.parts *
                                column_blocks(plan, vectors ? kVector : 1);
    return launch(vectors ? reduce_columns<T, kVector> : reduce_columns<T, 1>, grid_for(blocks, 1),
                  dim3(kThreads), 0, stream, plan, split, term, centers, partials);
  }
  launch(dense_rows(plan) ? reduce_rows<TypedElements<T>, T, kVector>
                          : reduce_rows<TypedElements<T>, T, 1>,
         grid_for(split.outputs * split.parts * split.lanes, kThreads), dim3(kThreads), 0, stream,
         plan, split, term, rows_are_aligned(plan, false), centers, partials);
}

void launch_parts(const ReducePlan& plan, const Split& split, Term term, const double* centers,
                  double* partials, cudaStream_t stream) {
  if (plan.kept.dtypes[0] == DType::kFloat32)
    return launch_typed_parts<float>(plan, split, term, centers, partials, stream);
  if (plan.kept.dtypes[0] == DType::kBFloat16)
    return launch_typed_parts<__nv_bfloat16>(plan, split, term, centers, partials, stream);
  launch(reduce_rows<AnyElements<double>, double, 1>,
         grid_for(split.outputs * split.parts * split.lanes, kThreads), dim3(kThreads), 0, stream,
         plan, split, term, false, centers, partials);
}

template <class Joined>
void launch_join(const StridedPlan<2>& kept, Split split, Term term, const Joined* partials,
                 const Finish& finish, cudaStream_t stream) {
  split.lanes = lanes_for(split.parts, 4);
  launch(join_parts<Joined>, grid_for(split.outputs * split.lanes, kThreads), dim3(kThreads), 0,
         stream, kept, split, term, partials, finish);
}

// The kept dims with dense float64 outputs in their place.
StridedPlan<2> with_dense_outputs(StridedPlan<2> kept, double* outputs) {
  std::int64_t stride = 1;
  for (int d = kept.dims - 1; d >= 0; stride *= kept.sizes[d--]) kept.strides[1][d] = stride;
  kept.data[1] = outputs;
  kept.dtypes[1] = DType::kFloat64;
  return kept;
}

}  // namespace

std::size_t reduce_workspace(ReduceOp op, const DeviceView& y, const DeviceView& x) {
  const Split split = split_of(make_reduce_plan(y, x));
  const std::int64_t centers = op == ReduceOp::kVar ? split.outputs : 0;
  return static_cast<std::size_t>(split.outputs * split.parts + centers) * sizeof(double);
}

void launch_reduce(ReduceOp op, const DeviceView& y, const DeviceView& x, double correction,
                   void* workspace, cudaStream_t stream) {
  check_computed("reduce", x.dtype);
  check_computed("reduce", y.dtype);
  const ReducePlan plan = make_reduce_plan(y, x);
  const Split split = split_of(plan);
  const Finish finish{op, plan.reduced.numel, correction};
  const Term term = op == ReduceOp::kAmax ? Term::kMax : Term::kSum;
  if (!dtype_is_floating(x.dtype) && (op == ReduceOp::kSum || op == ReduceOp::kAmax)) {
    auto* const partials = static_cast<std::int64_t*>(workspace);
    launch(reduce_rows<AnyElements<std::int64_t>, std::int64_t, 1>,
           grid_for(split.outputs * split.parts * split.lanes, kThreads), dim3(kThreads), 0, stream,
           plan, split, term, false, static_cast<const double*>(nullptr), partials);
    return launch_join<std::int64_t>(plan.kept, split, term, partials, finish, stream);
  }
  auto* const partials = static_cast<double*>(workspace);
  launch_parts(plan, split, term, nullptr, partials, stream);
  if (op != ReduceOp::kVar)
    return launch_join<double>(plan.kept, split, term, partials, finish, stream);
  double* const centers = partials + split.outputs * split.parts;
  launch_join<double>(with_dense_outputs(plan.kept, centers), split, Term::kSum, partials,
                      {ReduceOp::kMean, plan.reduced.numel, 0.0}, stream);
  launch_parts(plan, split, Term::kSquares, centers, partials, stream);
  launch_join<double>(plan.kept, split, Term::kSum, partials, finish, stream);
}

}  // namespace meshloom::kernels::cuda
