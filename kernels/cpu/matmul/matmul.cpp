// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul.h"

#include <algorithm>
#include <optional>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/matmul/batch_invariant_matmul.h"
#include "kernels/cpu/matmul/library_threads.h"
#include "kernels/cpu/matmul/matmul_blas.h"
#include "kernels/cpu/matmul/matmul_direct.h"
#include "kernels/cpu/matmul/matmul_epilogue.h"
#include "kernels/cpu/matmul/matmul_onednn.h"
#include "kernels/cpu/matmul/matmul_table.h"
#include "kernels/cpu/matmul/scaled_matmul.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// Panels of operands that must be converted, and of results that must be. Large enough that the
// products run at full rate (a converted element serves at least this many multiply-adds), small
// enough for the cache.
constexpr std::int64_t kPanelRows = 1024;
constexpr std::int64_t kPanelColumns = 1024;
constexpr std::int64_t kPanelDepth = 2048;

// Below this many multiply-adds a batch entry runs on one thread and the batch is split over
// threads.
constexpr std::int64_t kBatchSplitLimit = 32 << 20;

template <typename Compute>
constexpr DType kComputeDType = sizeof(Compute) == 8 ? DType::kFloat64 : DType::kFloat32;

TensorView region(const TensorView& view, std::int64_t row, std::int64_t rows, std::int64_t column,
                  std::int64_t columns) {
  TensorView part = view;
  const std::int64_t offset = row * view.stride(0) + column * view.stride(1);
  part.data = view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
  part.shape = {rows, columns};
  return part;
}

// float32 or float64, by a library's BLAS: what the table has besides is for whole products alone.
void multiply(const KernelContext& context, DType dtype, const Gemm& gemm) {
  const LibraryThreads threads(context.threads);
  if (dtype == DType::kFloat64) return blas_gemm_f64(gemm);
  const MatmulProvider provider = choose_matmul_provider(cpu_class(), dtype, gemm);
  if (provider == MatmulProvider::kOpenBlas && blas_knows_cpu()) return blas_gemm_f32(gemm);
  onednn_sgemm(gemm);
}

// One operand that is read in panels: as it is, or converted to dense rows (or columns, whatever is
// nearer) of the compute type. Holds the panel that was converted last.
template <typename Compute>
class PanelSource {
 public:
  explicit PanelSource(const TensorView& view)
      : view_(view), direct_(direct_operand(view, kComputeDType<Compute>)) {}

  bool direct() const { return direct_.has_value(); }
  void use_scratch(Compute* scratch) { scratch_ = scratch; }

  GemmOperand panel(const KernelContext& context, std::int64_t row, std::int64_t rows,
                    std::int64_t column, std::int64_t columns) {
    if (direct_) {
      GemmOperand operand = *direct_;
      const std::int64_t offset =
          operand.transposed ? column * operand.ld + row : row * operand.ld + column;
      operand.data = static_cast<const Compute*>(operand.data) + offset;
      return operand;
    }
    const bool transposed = view_.stride(0) == 1 && view_.stride(1) != 1;
    const std::int64_t ld = transposed ? rows : columns;
    if (row != row_ || column != column_) {
      const TensorView to{scratch_,
                          kComputeDType<Compute>,
                          {rows, columns},
                          transposed ? Strides{1, ld} : Strides{ld, 1},
                          kCpuDevice};
      cpu_backend().copy(context, to, region(view_, row, rows, column, columns));
      row_ = row;
      column_ = column;
    }
    return {scratch_, ld, transposed};
  }

 private:
  TensorView view_;
  std::optional<GemmOperand> direct_;
  Compute* scratch_ = nullptr;
  std::int64_t row_ = -1, column_ = -1;
};

// y [m, n], a [m, k], b [k, n] of any strides, in panels where something must be converted.
template <typename Compute>
class Product {
 public:
  Product(Threads threads, const TensorView& y, const TensorView& a, const TensorView& b,
          const MatmulOptions& options, const TensorView& pre_activation)
      : y_(y),
        pre_(pre_activation),
        options_(options),
        a_(a),
        b_(b),
        m_(y.size(0)),
        n_(y.size(1)),
        k_(a.size(1)) {
    whole_ = DirectProduct::plan(threads, y, a, b, options, pre_activation);
    if (whole_) return;
    const std::optional<GemmOperand> rows = direct_operand(y, kComputeDType<Compute>);
    if (rows && !rows->transposed) ldy_ = rows->ld;
    const bool whole = a_.direct() && b_.direct() && ldy_ > 0;
    panel_m_ = whole ? m_ : std::min(m_, kPanelRows);
    panel_n_ = whole ? n_ : std::min(n_, kPanelColumns);
    panel_k_ = whole ? k_ : std::min(k_, kPanelDepth);
  }

  const char* route() const {
    if (whole_) return whole_->route();
    const bool whole = a_.direct() && b_.direct() && ldy_ > 0;
    return whole ? "gemm" : "panels";
  }

  std::size_t scratch_bytes() const {
    if (whole_) return whole_->scratch_bytes();
    return (options_.epilogue == Epilogue::kNone ? 0 : piece_bytes<Compute>(n_)) +
           (a_.direct() ? 0 : piece_bytes<Compute>(panel_m_ * panel_k_)) +
           (b_.direct() ? 0 : piece_bytes<Compute>(panel_k_ * panel_n_)) +
           (ldy_ > 0 ? 0 : piece_bytes<Compute>(panel_m_ * panel_n_));
  }

  void run(const KernelContext& context, std::span<std::byte> scratch) {
    if (whole_) return whole_->run(context, scratch);
    SpanCutter cutter(scratch);
    if (options_.epilogue != Epilogue::kNone) prepare_bias(context, cutter.take<Compute>(n_));
    if (!a_.direct()) a_.use_scratch(cutter.take<Compute>(panel_m_ * panel_k_));
    if (!b_.direct()) b_.use_scratch(cutter.take<Compute>(panel_k_ * panel_n_));
    if (ldy_ == 0) result_ = cutter.take<Compute>(panel_m_ * panel_n_);
    for (std::int64_t row = 0; row < m_; row += panel_m_)
      for (std::int64_t column = 0; column < n_; column += panel_n_)
        run_block(context, row, column);
  }

 private:
  void prepare_bias(const KernelContext& context, Compute* bias) {
    cpu_backend().copy(context, make_view(bias, kComputeDType<Compute>, {n_}), options_.bias);
    bias_ = bias;
  }

  void run_block(const KernelContext& context, std::int64_t row, std::int64_t column) {
    const std::int64_t rows = std::min(panel_m_, m_ - row);
    const std::int64_t columns = std::min(panel_n_, n_ - column);
    const TensorView y = region(y_, row, rows, column, columns);
    const bool in_place = ldy_ > 0;
    Gemm gemm;
    gemm.m = rows;
    gemm.n = columns;
    gemm.alpha = options_.alpha;
    gemm.beta = options_.beta;
    gemm.ldy = in_place ? ldy_ : columns;
    gemm.y = in_place ? y.data : result_;
    const TensorView product{
        gemm.y, kComputeDType<Compute>, {rows, columns}, {gemm.ldy, 1}, kCpuDevice};
    if (!in_place && options_.beta != 0.0f) cpu_backend().copy(context, product, y);
    for (std::int64_t depth = 0; depth < k_; depth += panel_k_) {
      gemm.k = std::min(panel_k_, k_ - depth);
      gemm.a = a_.panel(context, row, rows, depth, gemm.k);
      gemm.b = b_.panel(context, depth, gemm.k, column, columns);
      multiply(context, kComputeDType<Compute>, gemm);
      gemm.beta = 1.0f;
    }
    if (options_.epilogue != Epilogue::kNone) {
      const TensorView pre = pre_.defined() ? region(pre_, row, rows, column, columns) : pre_;
      apply_epilogue<Compute>(context, options_.epilogue,
                              {static_cast<Compute*>(gemm.y), rows, columns, gemm.ldy},
                              bias_ + column, y, pre);
    } else if (!in_place) {
      cpu_backend().copy(context, y, product);
    }
  }

  TensorView y_, pre_;
  const MatmulOptions& options_;
  std::optional<DirectProduct> whole_;
  PanelSource<Compute> a_, b_;
  std::int64_t m_, n_, k_;
  std::int64_t ldy_ = 0;  // of y where the product can be made in it, else 0
  std::int64_t panel_m_ = 0, panel_n_ = 0, panel_k_ = 0;
  Compute* result_ = nullptr;
  const Compute* bias_ = nullptr;
};

// The leading dims of all views as one: [batch, rows, columns] each.
struct Batched {
  TensorView y, a, b, pre;
};

// The last dim but one absorbs the leading dims where the strides allow it.
bool merge_leading(TensorView& view) {
  const int last = view.ndim() - 1;
  std::int64_t rows = view.size(last - 1), stride = view.stride(last - 1);
  for (int d = last - 2; d >= 0; --d) {
    if (view.size(d) == 1) continue;
    if (rows == 1) {
      stride = view.stride(d);
    } else if (view.stride(d) != stride * rows) {
      return false;
    }
    rows *= view.size(d);
  }
  view = {view.data, view.dtype, {rows, view.size(last)}, {stride, view.stride(last)}, view.device};
  return true;
}

bool one_matrix(const TensorView& view) {
  for (int d = 0; d < view.ndim() - 2; ++d)
    if (view.size(d) != 1 && view.stride(d) != 0) return false;
  return true;
}

TensorView last_matrix(const TensorView& view, std::int64_t batch) {
  const int last = view.ndim() - 1;
  std::int64_t offset = 0;
  for (int d = last - 2; d >= 0; --d) {
    offset += batch % view.size(d) * view.stride(d);
    batch /= view.size(d);
  }
  return {view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype)),
          view.dtype,
          {view.size(last - 1), view.size(last)},
          {view.stride(last - 1), view.stride(last)},
          view.device};
}

// A batch that shares b is one taller product: a linear layer.
void fold_rows(Batched& views) {
  if (views.y.ndim() == 2 || !one_matrix(views.b)) return;
  Batched folded = views;
  if (!merge_leading(folded.y) || !merge_leading(folded.a)) return;
  if (folded.pre.defined() && !merge_leading(folded.pre)) return;
  folded.b = last_matrix(views.b, 0);
  views = folded;
}

template <typename Compute>
Product<Compute> product_of(Threads threads, const Batched& views, const MatmulOptions& options,
                            std::int64_t i) {
  const TensorView pre = views.pre.defined() ? last_matrix(views.pre, i) : views.pre;
  return Product<Compute>(threads, last_matrix(views.y, i), last_matrix(views.a, i),
                          last_matrix(views.b, i), options, pre);
}

// How the products of a batch share the threads and the scratch: large ones come one after the
// other on all threads, small ones in lanes of one thread each.
struct BatchLanes {
  std::int64_t batches = 1, lanes = 1;
  Threads threads;        // of a product
  std::size_t bytes = 0;  // of a product's scratch, whole cache lines
};

template <typename Compute>
BatchLanes lanes_of(Threads threads, const Batched& views, const MatmulOptions& options) {
  BatchLanes lanes;
  for (int d = 0; d < views.y.ndim() - 2; ++d) lanes.batches *= views.y.size(d);
  const std::int64_t work = views.y.size(views.y.ndim() - 2) * views.y.size(views.y.ndim() - 1) *
                            views.a.size(views.a.ndim() - 1);
  lanes.threads = threads;
  if (lanes.batches > 1 && work < kBatchSplitLimit) {
    lanes.threads = {1};
    const std::int64_t enough = 1 + lanes.batches * work / (1 << 17);
    lanes.lanes = std::min<std::int64_t>({std::max(threads.count, 1), lanes.batches, enough});
  }
  const std::size_t bytes = product_of<Compute>(lanes.threads, views, options, 0).scratch_bytes();
  lanes.bytes = piece_bytes<std::byte>(static_cast<std::int64_t>(bytes));
  return lanes;
}

template <typename Compute>
void run_batches(const KernelContext& context, const Batched& views, const MatmulOptions& options) {
  const BatchLanes lanes = lanes_of<Compute>(context.threads, views, options);
  const std::span<std::byte> scratch =
      reserve_workspace(context, lanes.bytes * static_cast<std::size_t>(lanes.lanes), "matmul");
  KernelContext inner = context;
  inner.workspace = nullptr;
  inner.threads = lanes.threads;
  const int workers = static_cast<int>(lanes.lanes);
  parallel_for({workers}, lanes.lanes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = lanes.batches * begin / workers; i < lanes.batches * end / workers; ++i)
      product_of<Compute>(inner.threads, views, options, i)
          .run(inner, scratch.subspan(static_cast<std::size_t>(begin) * lanes.bytes, lanes.bytes));
  });
}

// No terms to sum (a rank whose part of the inner dim is empty): y = epilogue(beta * y).
void run_empty(const KernelContext& context, const Batched& views, const MatmulOptions& options) {
  check(options.epilogue <= Epilogue::kBias &&
            (options.epilogue == Epilogue::kNone || options.beta == 0.0f),
        "matmul: this epilogue needs an inner size of at least 1");
  if (options.epilogue == Epilogue::kBias) {
    TensorView rows = options.bias;
    rows.shape = views.y.shape;
    rows.strides = views.y.strides;
    for (int d = 0; d + 1 < rows.shape.size(); ++d) rows.strides[d] = 0;
    rows.strides[rows.shape.size() - 1] = options.bias.strides[0];
    cpu_backend().copy(context, views.y, rows);
    return;
  }
  if (options.beta == 0.0f) cpu_backend().fill(context, views.y, 0.0);
}

}  // namespace

void CpuBackend::matmul(const KernelContext& context, const TensorView& y, const TensorView& a,
                        const TensorView& b, const MatmulOptions& options) {
  if (y.numel() == 0) return;
  if (!dtype_is_floating(a.dtype))
    throw Unimplemented(
        fmt::format("matmul: dtype {} is not offered on the CPU", dtype_name(a.dtype)));
  Batched views{y, a, b, options.pre_activation};
  if (options.scales.defined()) return scaled_matmul(context, y, a, b, options);
  if (a.size(a.ndim() - 1) == 0) return run_empty(context, views, options);
  if (options.batch_invariant) return batch_invariant_matmul(context, y, a, b, options);
  fold_rows(views);
  if (a.dtype == DType::kFloat64) return run_batches<double>(context, views, options);
  run_batches<float>(context, views, options);
}

std::size_t matmul_workspace_bytes(Threads threads, const TensorView& y, const TensorView& a,
                                   const TensorView& b, const MatmulOptions& options) {
  if (y.numel() == 0) return 0;
  if (options.scales.defined()) return scaled_matmul_workspace_bytes(threads, y, a, b, options);
  if (a.size(a.ndim() - 1) == 0) return 0;
  if (options.batch_invariant) return batch_invariant_workspace_bytes(threads, y, a, b, options);
  Batched views{y, a, b, options.pre_activation};
  fold_rows(views);
  const BatchLanes lanes = a.dtype == DType::kFloat64 ? lanes_of<double>(threads, views, options)
                                                      : lanes_of<float>(threads, views, options);
  return lanes.bytes * static_cast<std::size_t>(lanes.lanes);
}

const char* matmul_route(Threads threads, const TensorView& y, const TensorView& a,
                         const TensorView& b, const MatmulOptions& options) {
  Batched views{y, a, b, options.pre_activation};
  fold_rows(views);
  if (a.dtype == DType::kFloat64) return product_of<double>(threads, views, options, 0).route();
  return product_of<float>(threads, views, options, 0).route();
}

}  // namespace meshloom::kernels::cpu
