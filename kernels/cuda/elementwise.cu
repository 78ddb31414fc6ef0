// SPDX-License-Identifier: Apache-2.0
// Elementwise functions.
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/map_elements.h"
#include "kernels/cuda/unary_functions.h"

namespace meshloom::kernels::cuda {
namespace {

struct UnaryMap {
  UnaryOp op;
  double scalar;

  template <class C, int n>
  __device__ __forceinline__ void operator()(C (&y)[1][n], const C (&x)[1][n]) const {
    const C c = static_cast<C>(scalar);
    dispatch_unary(op, [&]<UnaryOp kOp>(UnaryTag<kOp>) {
      for (int i = 0; i < n; ++i) y[0][i] = unary_value<kOp>(x[0][i], c);
    });
  }
};

struct UnarySlopeMap {
  UnaryOp op;
  double scalar;

  /// in: dy, saved.
  template <class C, int n>
  __device__ __forceinline__ void operator()(C (&dx)[1][n], const C (&in)[2][n]) const {
    const C c = static_cast<C>(scalar);
    dispatch_unary(op, [&]<UnaryOp kOp>(UnaryTag<kOp>) {
      for (int i = 0; i < n; ++i) dx[0][i] = in[0][i] * unary_slope<kOp>(in[1][i], c);
    });
  }
};

template <class C>
__device__ __forceinline__ C binary_value(BinaryOp op, C a, C b) {
  switch (op) {
    case BinaryOp::kAdd: return a + b;
    case BinaryOp::kSub: return a - b;
    case BinaryOp::kMul: return a * b;
    case BinaryOp::kDiv: return a / b;
  }
  return a;
}

struct BinaryMap {
  BinaryOp op;

  template <class C, int n>
  __device__ __forceinline__ void operator()(C (&y)[1][n], const C (&in)[2][n]) const {
    for (int i = 0; i < n; ++i) y[0][i] = binary_value(op, in[0][i], in[1][i]);
  }
};

/// in: gate, up.
struct SwigluMap {
  template <class C, int n>
  __device__ __forceinline__ void operator()(C (&y)[1][n], const C (&in)[2][n]) const {
    for (int i = 0; i < n; ++i) y[0][i] = unary_value<UnaryOp::kSilu>(in[0][i], C(0)) * in[1][i];
  }
};

/// out: dgate, dup; in: dy, gate, up.
struct SwigluSlopeMap {
  template <class C, int n>
  __device__ __forceinline__ void operator()(C (&out)[2][n], const C (&in)[3][n]) const {
    for (int i = 0; i < n; ++i) {
      const C grad = in[0][i], gate = in[1][i], up = in[2][i];
      const C s = sigmoid(gate);
      out[0][i] = grad * up * (s * (C(1) + gate * (C(1) - s)));
      out[1][i] = grad * (gate * s);
    }
  }
};

// Unsigned, so that overflow wraps around.
__device__ __forceinline__ std::int64_t integer_value(BinaryOp op, std::int64_t a, std::int64_t b) {
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  switch (op) {
    case BinaryOp::kAdd: return static_cast<std::int64_t>(ua + ub);
    case BinaryOp::kSub: return static_cast<std::int64_t>(ua - ub);
    case BinaryOp::kMul: return static_cast<std::int64_t>(ua * ub);
    case BinaryOp::kDiv:
      if (b == 0) return 0;
      return b == -1 ? static_cast<std::int64_t>(0 - ua) : a / b;
  }
  return a;
}

__global__ void __launch_bounds__(kMapThreads)
    binary_integers(const __grid_constant__ StridedPlan<3> plan, BinaryOp op) {
  for (std::int64_t i = grid_thread<kMapThreads>(); i < plan.numel;
       i += grid_threads<kMapThreads>()) {
    std::int64_t at[3];
    locate(plan, i, at);
    const auto a = load_any<std::int64_t>(plan.dtypes[1], plan.data[1], at[1]);
    const auto b = load_any<std::int64_t>(plan.dtypes[2], plan.data[2], at[2]);
    store_any(plan.dtypes[0], plan.data[0], at[0], integer_value(op, a, b));
  }
}

// Views: y, condition, a, b.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    select_elements(const __grid_constant__ StridedPlan<4> plan) {
  for (std::int64_t i = grid_thread<kMapThreads>(); i < plan.numel;
       i += grid_threads<kMapThreads>()) {
    std::int64_t at[4];
    locate(plan, i, at);
    const bool first = static_cast<const std::uint8_t*>(plan.data[1])[at[1]] != 0;
    const T* from = first ? static_cast<const T*>(plan.data[2]) + at[2]
                          : static_cast<const T*>(plan.data[3]) + at[3];
    static_cast<T*>(plan.data[0])[at[0]] = *from;
  }
}

// Views: y, x, whose last two dims are rows and columns.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    keep_triangle(const __grid_constant__ StridedPlan<2> plan, bool upper, std::int64_t diagonal) {
  const std::int64_t rows = plan.sizes[plan.dims - 2], columns = plan.sizes[plan.dims - 1];
  for (std::int64_t i = grid_thread<kMapThreads>(); i < plan.numel;
       i += grid_threads<kMapThreads>()) {
    std::int64_t at[2];
    const std::int64_t column = locate(plan, i, at);
    const std::int64_t distance = column - i / columns % rows;
    const bool kept = upper ? distance >= diagonal : distance <= diagonal;
    static_cast<T*>(plan.data[0])[at[0]] = kept ? static_cast<const T*>(plan.data[1])[at[1]] : T{};
  }
}

/// Calls body(TypeTag<T>{}) for an unsigned type of the element's size.
template <class Body>
void for_element_size(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64: return body(TypeTag<std::uint64_t>{});
    case DType::kFloat32:
    case DType::kInt32: return body(TypeTag<std::uint32_t>{});
    case DType::kBFloat16:
    case DType::kFloat16: return body(TypeTag<std::uint16_t>{});
    default: return body(TypeTag<std::uint8_t>{});
  }
}

}  // namespace

void launch_unary(UnaryOp op, const DeviceView& y, const DeviceView& x, double scalar,
                  cudaStream_t stream) {
  launch_map<1, 1>("unary", {&y, &x}, UnaryMap{op, scalar}, stream);
}

bool unary_backward_reads_output(UnaryOp op) { return slope_reads_output(op); }

void launch_unary_backward(UnaryOp op, const DeviceView& dx, const DeviceView& dy,
                           const DeviceView& saved, double scalar, cudaStream_t stream) {
  launch_map<1, 2>("unary_backward", {&dx, &dy, &saved}, UnarySlopeMap{op, scalar}, stream);
}

void launch_binary(BinaryOp op, const DeviceView& y, const DeviceView& a, const DeviceView& b,
                   cudaStream_t stream) {
  const bool integers =
      y.dtype == DType::kInt64 || y.dtype == DType::kInt32 || y.dtype == DType::kUInt8;
  if (!integers || a.dtype != y.dtype || b.dtype != y.dtype)
    return launch_map<1, 2>("binary", {&y, &a, &b}, BinaryMap{op}, stream);
  const auto plan = make_strided_plan<3>({&y, &a, &b});
  launch(binary_integers, map_grid(plan.numel), dim3(kMapThreads), 0, stream, plan, op);
}

void launch_where(const DeviceView& y, const DeviceView& condition, const DeviceView& a,
                  const DeviceView& b, cudaStream_t stream) {
  const auto plan = make_strided_plan<4>({&y, &condition, &a, &b});
  for_element_size(y.dtype, [&]<class T>(TypeTag<T>) {
    launch(select_elements<T>, map_grid(plan.numel), dim3(kMapThreads), 0, stream, plan);
  });
}

void launch_triangle(const DeviceView& y, const DeviceView& x, bool upper, std::int64_t diagonal,
                     cudaStream_t stream) {
  // The dims stay as they are: which are rows and columns counts.
  StridedPlan<2> plan;
  plan.dims = y.dims;
  plan.numel = y.numel;
  plan.data[0] = y.data;
  plan.data[1] = x.data;
  for (int d = 0; d < y.dims; ++d) {
    plan.sizes[d] = y.sizes[d];
    plan.strides[0][d] = y.strides[d];
    plan.strides[1][d] = x.strides[d];
  }
  for_element_size(y.dtype, [&]<class T>(TypeTag<T>) {
    launch(keep_triangle<T>, map_grid(plan.numel), dim3(kMapThreads), 0, stream, plan, upper,
           diagonal);
  });
}

void launch_swiglu(const DeviceView& y, const DeviceView& gate, const DeviceView& up,
                   cudaStream_t stream) {
  launch_map<1, 2>("swiglu", {&y, &gate, &up}, SwigluMap{}, stream);
}

void launch_swiglu_backward(const DeviceView& dgate, const DeviceView& dup, const DeviceView& dy,
                            const DeviceView& gate, const DeviceView& up, cudaStream_t stream) {
  launch_map<2, 3>("swiglu_backward", {&dgate, &dup, &dy, &gate, &up}, SwigluSlopeMap{}, stream);
}

}  // namespace meshloom::kernels::cuda
