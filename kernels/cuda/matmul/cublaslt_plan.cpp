// SPDX-License-Identifier: Apache-2.0
// MatmulPlan by cuBLASLt. Its matrices have dense columns, so it is asked for y^T = b^T a^T.
#include <cublasLt.h>

#include <map>
#include <mutex>
#include <vector>

#include "kernels/base/device_products.h"
#include "kernels/base/error.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/current_device.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kAskedKernels = 16;

void check_library(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw InternalError(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t library_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return CUDA_R_16BF;
    case DType::kFloat16: return CUDA_R_16F;
    case DType::kFloat64: return CUDA_R_64F;
    case DType::kFloat8E4M3: return CUDA_R_8F_E4M3;
    default: return CUDA_R_32F;
  }
}

// One for each device, kept until the process ends: the driver may be gone when statics are
// destroyed.
cublasLtHandle_t handle_of(int device) {
  static auto* const mutex = new std::mutex;
  static auto* const handles = new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(*mutex);
  const auto [at, fresh] = handles->try_emplace(device, nullptr);
  if (fresh) {
    const cublasStatus_t status = cublasLtCreate(&at->second);
    if (status != CUBLAS_STATUS_SUCCESS) handles->erase(at);
    check_library(status, "create");
  }
  return at->second;
}

// Owns a descriptor of the library's.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor() {
    if (handle_ != nullptr) kDestroy(handle_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Handle* out() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Operation = Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t name, const Value& value) {
  check_library(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)),
                "attribute of an operation");
}
template <class Value>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t name, const Value& value) {
  check_library(cublasLtMatrixLayoutSetAttribute(layout, name, &value, sizeof(value)),
                "attribute of a layout");
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name,
         const Value& value) {
  check_library(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)),
                "preference");
}

class CublasLtPlan final : public MatmulPlan {
 public:
  CublasLtPlan(int device, const MatmulShape& shape) : shape_(shape), handle_(handle_of(device)) {
    describe_operation();
    describe(a_, shape.operands, shape.a, shape.m, shape.k);
    describe(b_, shape.operands, shape.b, shape.k, shape.n);
    describe(y_, shape.result, shape.y, shape.m, shape.n);
  }

  // The deterministic kernels that the library lists, best guess first.
  std::vector<cublasLtMatmulHeuristicResult_t> list_kernels() {
    Preference preference;
    check_library(cublasLtMatmulPreferenceCreate(preference.out()), "preference");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(kDeviceProductBytes));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kSchemes);
    const auto align = [&](cublasLtMatmulPreferenceAttributes_t name, const MatrixLayout& layout) {
      set(preference, name, static_cast<std::uint32_t>(layout.alignment));
    };
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape_.b);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape_.a);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape_.y);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape_.y);
    std::vector<cublasLtMatmulHeuristicResult_t> found(kAskedKernels);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, operation_, b_, a_, y_, y_, preference, kAskedKernels, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
    check_library(status, "choice of a kernel");
    found.resize(static_cast<std::size_t>(count));
    std::erase_if(found, [](const cublasLtMatmulHeuristicResult_t& kernel) {
      return kernel.state != CUBLAS_STATUS_SUCCESS || !deterministic(kernel.algo);
    });
    return found;
  }

  void choose_kernel(const cublasLtMatmulHeuristicResult_t& kernel) {
    kernel_ = kernel.algo;
    workspace_bytes_ = kernel.workspaceSize;
  }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(cudaStream_t stream, const MatmulRun& run, void* workspace) override {
    const double wide[] = {run.alpha, run.beta};
    const bool is_wide = shape_.operands == DType::kFloat64;
    const void* alpha = is_wide ? static_cast<const void*>(&wide[0]) : &run.alpha;
    const void* beta = is_wide ? static_cast<const void*>(&wide[1]) : &run.beta;
    // Addresses of the epilogue and of scales are part of the operation.
    const std::lock_guard lock(mutex_);
    if (is_float8()) {
      set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, run.b_scale);
      set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, run.a_scale);
    }
    if (shape_.epilogue != LibraryEpilogue::kNone)
      set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, run.bias);
    if (shape_.epilogue == LibraryEpilogue::kBiasGeluTanhKept)
      set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, run.kept);
    const cublasStatus_t status =
        cublasLtMatmul(handle_, operation_, alpha, run.b, b_, run.a, a_, beta, run.y, y_, run.y, y_,
                       &kernel_, workspace, workspace_bytes_, stream);
    if (status != CUBLAS_STATUS_SUCCESS) check_late(stream, "matmul");
    check_library(status, "matmul");
  }

 private:
  // Sums over parts of the depth are added in float32 by a second kernel, not in the order in which
  // blocks come to an end.
  static constexpr std::uint32_t kSchemes =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

  void describe_operation() {
    const bool wide = shape_.operands == DType::kFloat64;
    // float32 is computed in float32: no TF32.
    check_library(
        cublasLtMatmulDescCreate(operation_.out(), wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 wide ? CUDA_R_64F : CUDA_R_32F),
        "operation");
    const cublasOperation_t b = shape_.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t a = shape_.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, b);
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, a);
    if (is_float8()) {
      // Sums stay in float32 from the first term on.
      set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
      set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, kPlaceholder);
      set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, kPlaceholder);
    }
    if (shape_.epilogue == LibraryEpilogue::kNone) return;
    // Kernels are chosen before there is a bias, and the library wants to see an address.
    const std::uintptr_t any_address = kPlaceholder;
    const bool kept = shape_.epilogue == LibraryEpilogue::kBiasGeluTanhKept;
    const cublasLtEpilogue_t epilogue = kept ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                        : shape_.epilogue == LibraryEpilogue::kBias
                                            ? CUBLASLT_EPILOGUE_BIAS
                                            : CUBLASLT_EPILOGUE_GELU_BIAS;
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<std::int32_t>(library_type(shape_.result)));
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, any_address);
    if (!kept) return;
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, any_address);
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE,
        static_cast<std::int32_t>(library_type(shape_.result)));
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape_.kept.ld);
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, shape_.kept.batch_stride);
  }

  // A matrix of ours [rows, columns] as the library's.
  void describe(Layout& layout, DType dtype, const MatrixLayout& of, std::int64_t rows,
                std::int64_t columns) const {
    const auto dense = static_cast<std::uint64_t>(of.transposed ? rows : columns);
    const auto lines = static_cast<std::uint64_t>(of.transposed ? columns : rows);
    check_library(
        cublasLtMatrixLayoutCreate(layout.out(), library_type(dtype), dense, lines, of.ld),
        "layout");
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(shape_.batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, of.batch_stride);
  }

  static bool deterministic(const cublasLtMatmulAlgo_t& kernel) {
    std::uint32_t scheme = 0;
    std::size_t written = 0;
    check_library(
        cublasLtMatmulAlgoConfigGetAttribute(&kernel, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                             &scheme, sizeof(scheme), &written),
        "a kernel's way of summing");
    return (scheme & ~kSchemes) == 0;
  }

  bool is_float8() const { return shape_.operands == DType::kFloat8E4M3; }

  static constexpr std::uintptr_t kPlaceholder = 256;

  MatmulShape shape_;
  cublasLtHandle_t handle_;
  Operation operation_;
  Layout a_, b_, y_;
  cublasLtMatmulAlgo_t kernel_{};
  std::size_t workspace_bytes_ = 0;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<MatmulPlan> create_matmul_plan(int device, const MatmulShape& shape, int kernel) {
  use_device(device);
  auto plan = std::make_unique<CublasLtPlan>(device, shape);
  const auto kernels = plan->list_kernels();
  if (kernels.size() <= static_cast<std::size_t>(kernel)) return nullptr;
  plan->choose_kernel(kernels[static_cast<std::size_t>(kernel)]);
  return plan;
}

int count_matmul_kernels(int device, const MatmulShape& shape) {
  use_device(device);
  return static_cast<int>(CublasLtPlan(device, shape).list_kernels().size());
}

}  // namespace meshloom::kernels::cuda
