// SPDX-License-Identifier: Apache-2.0
// SdpaPlan by cuDNN: a graph with one node. The one file that includes cuDNN's frontend, which
// takes a minute to compile.
#include <cudnn_frontend.h>

#include <map>
#include <mutex>
#include <unordered_map>

#include "kernels/base/error.h"
#include "kernels/base/log.h"
#include "kernels/cuda/attention/sdpa_plan.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/current_device.h"

namespace meshloom::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using GraphTensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kGradO, kDq, kDk, kDv };

// A handle has one stream at a time.
struct Library {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
};

void check_library(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw InternalError(fmt::format("cuDNN: {}: {}", what, cudnnGetErrorString(status)));
}

// One for each device, kept until the process ends: the driver may be gone when statics are
// destroyed.
Library& library_of(int device) {
  static auto* const mutex = new std::mutex;
  static auto* const libraries = new std::map<int, Library>;
  const std::lock_guard lock(*mutex);
  Library& library = (*libraries)[device];
  if (library.handle == nullptr) check_library(cudnnCreate(&library.handle), "create");
  return library;
}

class CudnnPlan final : public SdpaPlan {
 public:
  CudnnPlan(int device, const SdpaShape& shape) : shape_(shape), library_(library_of(device)) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (shape.backward)
      describe_backward();
    else
      describe_forward();
  }

  // What cuDNN says against the graph, or nothing.
  std::string build() {
    const std::lock_guard lock(library_.mutex);
    fe::error_t error = graph_.validate();
    if (error.is_good()) error = graph_.build_operation_graph(library_.handle);
    if (error.is_good()) error = graph_.create_execution_plans({fe::HeurMode_t::A});
    if (error.is_good()) error = graph_.check_support(library_.handle);
    if (error.is_good())
      error = graph_.build_plans(library_.handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    std::int64_t bytes = 0;
    if (error.is_good()) error = graph_.get_workspace_size(bytes);
    if (error.is_bad()) return error.get_message();
    workspace_bytes_ = static_cast<std::size_t>(bytes);
    return {};
  }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(cudaStream_t stream, const SdpaRun& run, void* workspace) override {
    std::unordered_map<std::int64_t, void*> addresses{
        {kQ, run.q}, {kK, run.k}, {kV, run.v}, {kO, run.o}, {kLse, run.lse}};
    if (shape_.backward)
      addresses.insert({{kGradO, run.grad_o}, {kDq, run.dq}, {kDk, run.dk}, {kDv, run.dv}});
    const std::lock_guard lock(library_.mutex);
    const cudnnStatus_t status = cudnnSetStream(library_.handle, stream);
    if (status != CUDNN_STATUS_SUCCESS) check_late(stream, "attention");
    check_library(status, "stream");
    fe::error_t error = graph_.execute(library_.handle, addresses, workspace);
    if (error.is_good()) return;
    check_late(stream, "attention");
    throw InternalError(fmt::format("cuDNN: attention: {}", error.get_message()));
  }

 private:
  using Sizes = std::vector<std::int64_t>;

  Sizes rows(std::int64_t heads, std::int64_t count, std::int64_t dims) const {
    return {shape_.batch, heads, count, dims};
  }
  static Sizes strides(const SdpaLayout& layout) {
    return {layout.batch, layout.head, layout.row, 1};
  }

  GraphTensor input(Uid uid, const char* name, const Sizes& sizes, const SdpaLayout& layout) {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(sizes).set_stride(
            strides(layout)));
  }
  static void output(const GraphTensor& tensor, Uid uid, const Sizes& sizes,
                     const SdpaLayout& layout) {
    tensor->set_output(true).set_uid(uid).set_dim(sizes).set_stride(strides(layout));
  }

  Sizes queries_by(std::int64_t dims) const { return rows(shape_.heads, shape_.queries, dims); }
  Sizes keys_by(std::int64_t dims) const { return rows(shape_.kv_heads, shape_.keys, dims); }
  Sizes lse_strides() const { return {shape_.heads * shape_.queries, shape_.queries, 1, 1}; }

  template <class Attributes>
  void describe_mask(Attributes& attributes) const {
    attributes.set_attn_scale(shape_.scale);
    if (shape_.mask == SdpaMask::kFull) return;
    attributes.set_diagonal_alignment(shape_.mask == SdpaMask::kCausalTopLeft
                                          ? fe::DiagonalAlignment_t::TOP_LEFT
                                          : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    attributes.set_diagonal_band_right_bound(0);
    // cuDNN counts the diagonal's own key as well.
    if (shape_.window_left >= 0)
      attributes.set_diagonal_band_left_bound(static_cast<int>(shape_.window_left + 1));
  }

  void describe_forward() {
    const GraphTensor q = input(kQ, "q", queries_by(shape_.dims), shape_.q);
    const GraphTensor k = input(kK, "k", keys_by(shape_.dims), shape_.k);
    const GraphTensor v = input(kV, "v", keys_by(shape_.dims_v), shape_.v);
    auto attributes = fe::graph::SDPA_attributes().set_name("sdpa").set_generate_stats(true);
    describe_mask(attributes);
    const auto [o, lse] = graph_.sdpa(q, k, v, attributes);
    output(o, kO, queries_by(shape_.dims_v), shape_.o);
    lse->set_output(true).set_uid(kLse).set_data_type(fe::DataType_t::FLOAT);
    lse->set_dim(queries_by(1)).set_stride(lse_strides());
  }

  void describe_backward() {
    const GraphTensor q = input(kQ, "q", queries_by(shape_.dims), shape_.q);
    const GraphTensor k = input(kK, "k", keys_by(shape_.dims), shape_.k);
    const GraphTensor v = input(kV, "v", keys_by(shape_.dims_v), shape_.v);
    const GraphTensor o = input(kO, "o", queries_by(shape_.dims_v), shape_.o);
    const GraphTensor grad_o = input(kGradO, "do", queries_by(shape_.dims_v), shape_.grad_o);
    const GraphTensor lse = graph_.tensor(fe::graph::Tensor_attributes()
                                              .set_name("lse")
                                              .set_uid(kLse)
                                              .set_dim(queries_by(1))
                                              .set_stride(lse_strides())
                                              .set_data_type(fe::DataType_t::FLOAT));
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("sdpa_backward")
                          .set_deterministic_algorithm(true);
    describe_mask(attributes);
    const auto [dq, dk, dv] = graph_.sdpa_backward(q, k, v, o, grad_o, lse, attributes);
    output(dq, kDq, queries_by(shape_.dims), shape_.dq);
    output(dk, kDk, keys_by(shape_.dims), shape_.dk);
    output(dv, kDv, keys_by(shape_.dims_v), shape_.dv);
  }

  SdpaShape shape_;
  Library& library_;
  Graph graph_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<SdpaPlan> create_sdpa_plan(int device, const SdpaShape& shape) {
  use_device(device);
  auto plan = std::make_unique<CudnnPlan>(device, shape);
  const std::string refusal = plan->build();
  if (refusal.empty()) return plan;
  spdlog::warn(
      "cuDNN does not build attention{} of {} x {} heads ({} of keys), {} queries, {} keys, dims "
      "{} "
      "and {}: {}; products and an own softmax take its place, which is slower",
      shape.backward ? "'s gradient" : "", shape.batch, shape.heads, shape.kv_heads, shape.queries,
      shape.keys, shape.dims, shape.dims_v, one_line(refusal));
  return nullptr;
}

}  // namespace meshloom::kernels::cuda
