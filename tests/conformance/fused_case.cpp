// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/fused_case.h"

#include <algorithm>
#include <array>

#include "daemon/comm/symm_mem/fused/fused_matmul.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/dtensor_spec.h"
#include "planner/shard.h"
#include "tests/conformance/group_attributes.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

using planner::Placement;

constexpr std::array<std::string_view, 4> kOps{
    "fused_all_gather_matmul", "fused_matmul_reduce_scatter", "fused_all_gather_scaled_matmul",
    "fused_scaled_matmul_reduce_scatter"};

struct Attributes {
  std::string op;
  bool gathers = false, scaled = false;
  std::int64_t dim = 0;  ///< gather_dim or scatter_dim, as it was written
  comm::ReduceOp reduce_op = comm::ReduceOp::kSum;
  std::optional<DType> out_dtype;
  std::vector<std::string> transposed;
  std::vector<std::string> bs;  ///< names of the second matrices
};

DType read_dtype(const std::string& op, const std::string& text) {
  const std::optional<DType> dtype = dtype_from_name(text);
  check(dtype.has_value() && dtype_is_floating(*dtype), "{}: out_dtype is '{}'", op, text);
  return *dtype;
}

Attributes read_attributes(const std::string& op, const Case& c, const TensorFile& file) {
  Attributes read;
  read.op = op;
  read.gathers = op == kOps[0] || op == kOps[2];
  read.scaled = op == kOps[2] || op == kOps[3];
  check(c.keys.contains("attributes"), "{} needs attributes", op);
  ObjectReader reader(c.keys["attributes"], "attributes of " + op);
  read.dim = reader.integer(read.gathers ? "gather_dim" : "scatter_dim");
  if (!read.gathers) read.reduce_op = read_reduce_op(op, reader.string("reduce_op"));
  if (reader.has("out_dtype")) read.out_dtype = read_dtype(op, reader.string("out_dtype"));
  if (read.gathers && !read.scaled)
    for (int i = 0; file.has(fmt::format("in.B{}", i)); ++i)
      read.bs.push_back(fmt::format("B{}", i));
  else
    read.bs.push_back("B");
  check(!read.bs.empty(), "{}: the file has no in.B0", op);
  if (reader.has("transposed")) {
    const Json& names = reader.value("transposed");
    check(names.is_array(), "{}: transposed is {}, expected a list of names", op, names.dump());
    for (const Json& name : names) {
      const bool known =
          name.is_string() && (name == "A" || std::find(read.bs.begin(), read.bs.end(),
                                                        name.get<std::string>()) != read.bs.end());
      check(known, "{}: transposed names {}, which is no matrix of it", op, name.dump());
      read.transposed.push_back(name.get<std::string>());
    }
  }
  reader.finish();
  return read;
}

/// One case on one rank.
class FusedCase {
 public:
  FusedCase(Attributes attributes, const Case& c, const TensorFile& file, RankContext& rank,
            CaseResults& results)
      : attributes_(std::move(attributes)),
        file_(file),
        rank_(rank),
        results_(results),
        mesh_(std::make_shared<const planner::MeshLayout>(c.mesh)),
        ndim_(file.shape("in.A").size()),
        last_(ndim_ - 1),
        dim_(static_cast<int>(attributes_.dim < 0 ? attributes_.dim + ndim_ : attributes_.dim)) {}

  void run(comm::SymmetricGroup& group) {
    if (attributes_.gathers)
      attributes_.scaled ? gather_scaled(group) : gather_plain(group);
    else
      store("y", attributes_.scaled ? scatter_scaled(group) : scatter_plain(group), dim_);
  }

 private:
  Tensor load(const std::string& name) const { return file_.load(rank_.context, "in." + name); }

  /// This rank's part along a dim; what has no such dim is handed over whole, to be refused by the
  /// op itself.
  Tensor shard(const Tensor& whole, int dim) const {
    if (dim < 0 || dim >= whole.ndim()) return whole;
    const planner::ShardRange range =
        planner::shard_range(whole.size(dim), rank_.world.size(), rank_.rank());
    return ops::contiguous(ops::slice(whole, dim, range.begin, range.end));
  }

  Tensor matrix(const std::string& name, int dim) const {
    const Tensor part = shard(load(name), dim);
    const auto& names = attributes_.transposed;
    if (part.ndim() < 2 || std::find(names.begin(), names.end(), name) == names.end()) return part;
    return ops::transpose(ops::contiguous(ops::transpose(part, -1, -2)), -1, -2);
  }

  /// What the file may have, or an undefined tensor.
  Tensor optional(const std::string& name, int dim) const {
    return file_.has("in." + name) ? shard(load(name), dim) : Tensor();
  }

  /// Scales of one element are the same on all ranks.
  Tensor scale(const std::string& name, int dim) const {
    const Tensor whole = load(name);
    return whole.numel() == 1 ? whole : shard(whole, dim);
  }

  /// Global values of an output that is sharded on `dim` (-1: on no dim).
  void store(const std::string& name, const Tensor& local, int dim) {
    Shape shape = local.shape();
    if (dim >= 0) {
      // The whole size: that of the inputs that have this dim whole.
      const bool columns = dim == shape.size() - 1;
      const std::string of = columns ? (name == "y" ? "B" : "B" + name.substr(1)) : "A";
      shape[dim] = file_.shape("in." + of)[columns ? 1 : dim];
    }
    const planner::Placements placements{dim < 0 ? Placement::replicate() : Placement::shard(dim)};
    const planner::DTensorSpec spec(mesh_, placements, shape);
    check(local.shape() == spec.local_shape(mesh_->coordinates(rank_.rank())),
          "{}: {} has shape {} on rank {}, expected {}", attributes_.op, name, local.shape(),
          rank_.rank(), spec.local_shape(mesh_->coordinates(rank_.rank())));
    results_.placements[name] = placements;
    results_.local_shapes[name] = local.shape();
    results_.tensors["out." + name] = gather_global(local, spec, rank_);
  }

  void gather_plain(comm::SymmetricGroup& group) {
    std::vector<Tensor> bs;
    for (const std::string& name : attributes_.bs) bs.push_back(matrix(name, 1));
    std::vector<DType> outs;
    if (attributes_.out_dtype) outs.assign(bs.size(), *attributes_.out_dtype);
    const comm::GatheredProducts got =
        comm::fused_all_gather_matmul(group, matrix("A", dim_), bs, attributes_.dim, {}, outs);
    store("A", got.gathered, -1);
    for (std::size_t i = 0; i < bs.size(); ++i)
      store(fmt::format("y{}", i), got.products[i], last_);
  }

  void gather_scaled(comm::SymmetricGroup& group) {
    const Tensor b = matrix("B", 1), b_scale = scale("B_scale", 1);
    const Tensor bias = optional("bias", 0), result = optional("result_scale", -1);
    // Along the last dim, every rank has the scales of all rows.
    const Tensor a_scale = scale("A_scale", dim_ == last_ ? -1 : dim_);
    comm::ScaledLists lists;
    if (bias.defined()) lists.biases = {&bias, 1};
    if (result.defined()) lists.result_scales = {&result, 1};
    lists.out_dtypes = {&attributes_.out_dtype, 1};
    const comm::GatheredProducts got = comm::fused_all_gather_scaled_matmul(
        group, matrix("A", dim_), {&b, 1}, a_scale, {&b_scale, 1}, attributes_.dim, lists);
    store("A", got.gathered, -1);
    store("y", got.products[0], last_);
  }

  Tensor scatter_plain(comm::SymmetricGroup& group) {
    return comm::fused_matmul_reduce_scatter(group, matrix("A", last_), matrix("B", 0),
                                             attributes_.reduce_op, attributes_.dim, {},
                                             attributes_.out_dtype);
  }

  Tensor scatter_scaled(comm::SymmetricGroup& group) {
    return comm::fused_scaled_matmul_reduce_scatter(
        group, matrix("A", last_), matrix("B", 0), load("A_scale"), load("B_scale"),
        attributes_.reduce_op, attributes_.dim,
        {optional("bias", -1), optional("result_scale", -1), attributes_.out_dtype});
  }

  Attributes attributes_;
  const TensorFile& file_;
  RankContext& rank_;
  CaseResults& results_;
  planner::MeshPtr mesh_;
  int ndim_, last_, dim_;
};

}  // namespace

bool is_fused_op(const std::string& op) {
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end();
}

void validate_fused(const std::string& op, const Case& c, const TensorFile& file) {
  const Attributes attributes = read_attributes(op, c, file);
  file.shape("in.A");
  for (const std::string& name : attributes.bs) file.shape("in." + name);
  if (!attributes.scaled) return;
  for (const char* name : {"in.A_scale", "in.B_scale"}) file.shape(name);
}

void run_fused(const std::string& op, const Case& c, const TensorFile& file, RankContext& rank,
               CaseResults& results) {
  comm::HostSymmetricMemory memory;
  comm::SymmetricGroup& group = memory.enable(rank.world);
  FusedCase(read_attributes(op, c, file), c, file, rank, results).run(group);
}

}  // namespace meshloom::conformance
