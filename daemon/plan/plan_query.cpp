// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/plan_query.h"

#include <algorithm>

#include "daemon/base/given_number.h"
#include "daemon/plan/clusters.h"
#include "daemon/plan/local_machine.h"
#include "daemon/plan/parallel_plan.h"
#include "daemon/plan/plan_messages.h"
#include "daemon/plan/traced_model.h"
#include "kernels/base/error.h"
#include "planner/estimate/parameter_layout.h"
#include "planner/estimate/rotate_choice.h"
#include "planner/estimate/search.h"
#include "planner/estimate/styled_model.h"
#include "planner/limits.h"

namespace meshloom::plan {
namespace {

constexpr const char* kDefaultCluster = kLocalCluster;
constexpr int kDefaultPlans = 10;

/// A pattern that matches nothing is a mistake.
void check_patterns(const planner::ParallelPlan& plan, const planner::ModelModules& modules) {
  const std::vector<std::string> texts = planner::unmatched_styles(modules, plan);
  if (!texts.empty()) base::refuse_field("plan.styles", "{}", texts.front());
  if (plan.shards.choices.empty()) return;
  base::with_field("plan.fully_shard_options.choices",
                   [&] { planner::shard_options(plan.shards, planner::parameter_names(modules)); });
}

planner::OptimizerState query_optimizer(const std::string& name) {
  if (name.empty() || name == "adamw" || name == "adam") return planner::OptimizerState::kAdam;
  if (name == "sgd") return planner::OptimizerState::kSgd;
  if (name == "sgd_momentum") return planner::OptimizerState::kSgdMomentum;
  base::refuse_field("optimizer", "must be adamw, adam, sgd or sgd_momentum, got \"{}\"", name);
}

void check_amount(const char* field, std::int64_t amount) {
  if (amount < 0) base::refuse_field(field, "{} is negative", amount);
}

/// Of a number that may be left out.
void check_amount(const char* field, bool is_given, std::int64_t amount, std::int64_t most,
                  const char* otherwise) {
  base::check_given_positive(field, is_given, amount, otherwise);
  if (amount > most) base::refuse_field(field, "must be at most {}, got {}", most, amount);
}

/// Within what a step may be, so that the sums and products of an estimate stay inside 63 bits.
void check_work(const v1::PlanQuery& query) {
  check_amount("seq_len", query.has_seq_len(), query.seq_len(), planner::kMostPositions,
               "the model's context");
  check_amount("micro_batch_size", query.has_micro_batch_size(), query.micro_batch_size(),
               planner::kMostBatch, "1; a search tries several then");
  check_amount("global_batch_size", query.has_global_batch_size(), query.global_batch_size(),
               planner::kMostBatch, "one micro batch a rank");
}

v1::ParameterPlacement to_message(const planner::ParameterLayout& p) {
  v1::ParameterPlacement m;
  m.set_name(p.name);
  m.set_count(p.count);
  m.mutable_shape()->Add(p.shape.begin(), p.shape.end());
  for (const planner::Placement& placement : p.placements)
    m.add_placements(planner::to_string(placement));
  m.mutable_local_shape()->Add(p.local.begin(), p.local.end());
  if (p.placements[3].is_shard() && (p.groups > 1 || p.unit > 1))
    m.set_units(p.groups > 1 ? fmt::format("{} x {}", p.groups, p.unit) : std::to_string(p.unit));
  return m;
}

/// The planner's request, and what of the query's plan a search has no use for is refused.
planner::SearchRequest search_request(const v1::PlanSearchQuery& search,
                                      const planner::ModelGraphs& model,
                                      const planner::Machine& machine) {
  const v1::PlanQuery& query = search.query();
  if (search.ranks() < 1) base::refuse_field("ranks", "must be at least 1, got {}", search.ranks());
  base::check_given_positive("max_tensor_parallel", search.has_max_tensor_parallel(),
                             search.max_tensor_parallel(), "the model's heads");
  check_amount("most_plans", search.most_plans());
  check_amount("most_rejected", search.most_rejected());
  check_work(query);
  v1::ParallelPlan rest = query.plan();
  rest.clear_dtype();
  rest.clear_activation_checkpoint();
  rest.clear_styles();
  if (rest.ByteSizeLong() > 0 || query.mesh().ByteSizeLong() > 0)
    base::refuse_field("query.plan",
                       "the search finds mesh and plan; of a plan it takes dtype, "
                       "activation_checkpoint and styles alone");
  const planner::MeshSizes one{};
  const planner::ParallelPlan given = read_parallel_plan(query.plan(), one, "plan");
  check_patterns(given, model.modules());
  planner::SearchRequest request;
  request.ranks = search.ranks();
  request.memory_limit = query_memory_limit(query, machine, search.ranks());
  request.global_batch = query.has_global_batch_size() ? query.global_batch_size() : search.ranks();
  request.sequence = query.has_seq_len() ? query.seq_len() : model.shape().positions;
  request.micro_batch = query.micro_batch_size();
  request.dtype = query_dtype(query.plan().dtype(), machine);
  request.optimizer = query_optimizer(query.optimizer());
  if (query.plan().activation_checkpoint() != v1::ACTIVATION_CHECKPOINT_UNSPECIFIED)
    request.checkpointing = given.checkpointing;
  request.max_tensor_parallel = search.max_tensor_parallel();
  request.styles = given.styles;
  return request;
}

}  // namespace

planner::Machine query_machine(const v1::PlanQuery& query) {
  const std::string name = query.cluster_name().empty() ? kDefaultCluster : query.cluster_name();
  if (query.has_cluster()) return make_machine(query.cluster(), "cluster");
  return make_machine(named_cluster(name), name);
}

DType query_dtype(const std::string& name, const planner::Machine& machine) {
  if (name.empty() || name == "auto")
    return machine.bfloat16_flops > machine.float32_flops ? DType::kBFloat16 : DType::kFloat32;
  if (name == "float32") return DType::kFloat32;
  if (name == "bfloat16") return DType::kBFloat16;
  base::refuse_field("plan.dtype", "must be float32, bfloat16 or auto, got \"{}\"", name);
}

MeshAndPlan query_plan(const v1::PlanQuery& query, const planner::ModelModules& modules,
                       const planner::Machine& machine) {
  MeshAndPlan result;
  result.mesh = make_mesh_sizes(query.mesh());
  const v1::ParallelPlan& given = query.plan();
  if (!given.name().empty())
    base::refuse_field("plan.name", "\"{}\" names a plan where one is to be given", given.name());
  // A mesh that shards and a plan that says not to.
  if (given.has_tensor_parallel() && !given.tensor_parallel() && result.mesh.tp > 1)
    base::refuse_field("plan.tensor_parallel", "is false, but tp is {}", result.mesh.tp);
  if (given.has_fully_shard() && !given.fully_shard() && result.mesh.fsdp > 1)
    base::refuse_field("plan.fully_shard", "is false, but fsdp is {}", result.mesh.fsdp);
  v1::ParallelPlan without_dtype = given;
  without_dtype.clear_dtype();
  result.plan = read_parallel_plan(without_dtype, result.mesh, "plan");
  check_patterns(result.plan, modules);
  result.plan.dtype = query_dtype(given.dtype(), machine);
  return result;
}

planner::Workload query_work(const v1::PlanQuery& query, const planner::ModelShape& model,
                             const planner::MeshSizes& mesh) {
  check_work(query);
  planner::Workload work;
  work.sequence = query.has_seq_len() ? query.seq_len() : model.positions;
  work.micro_batch = query.has_micro_batch_size() ? query.micro_batch_size() : 1;
  work.optimizer = query_optimizer(query.optimizer());
  work.global_batch = query.has_global_batch_size()
                          ? query.global_batch_size()
                          : work.micro_batch * std::int64_t{mesh.dp} * mesh.fsdp;
  return work;
}

std::int64_t query_memory_limit(const v1::PlanQuery& query, const planner::Machine& machine,
                                std::int64_t ranks) {
  base::check_given_positive("memory_limit_bytes", query.has_memory_limit_bytes(),
                             query.memory_limit_bytes(), "the machine's");
  return query.has_memory_limit_bytes() ? query.memory_limit_bytes()
                                        : planner::share_of_rank(machine, ranks).memory_bytes;
}

v1::PlanDescription describe_plan(const std::string& name, const nn::ModelConfig& config,
                                  const v1::PlanQuery& query, std::int64_t rank) {
  TracedModel model(config);
  const planner::Machine machine = query_machine(query);
  const auto [mesh, given] = query_plan(query, model.modules(), machine);
  const planner::Workload work = query_work(query, model.shape(), mesh);
  if (const auto reason = planner::why_invalid(model.shape(), mesh, given, work))
    throw InvalidArgument(*reason, "INVALID_PLAN");
  const planner::ParallelPlan plan = planner::resolve_context_parallel(
      given, model.shape(), mesh, work, machine.topology.ranks_per_host);
  if (rank < 0 || rank >= mesh.ranks())
    base::refuse_field("rank", "{} is not one of the mesh's {} ranks", rank, mesh.ranks());
  v1::PlanDescription d;
  d.set_model(name);
  *d.mutable_mesh() = plan::to_message(mesh);
  *d.mutable_plan() = plan::to_message(plan);
  d.set_rank(rank);
  const planner::MeshLayout layout = planner::mesh_layout(mesh);
  for (const planner::MeshDim& dim : layout.dims()) d.add_mesh_dims(dim.name);
  std::int64_t local = 0;
  for (const planner::ParameterLayout& p :
       planner::parameter_layouts(model, mesh, plan, layout.coordinates(static_cast<int>(rank)))) {
    *d.add_parameters() = to_message(p);
    local += p.count * numel(p.local);
  }
  d.set_parameter_count(planner::parameter_count(model.modules()));
  d.set_local_parameter_count(local);
  for (const planner::Traffic& t :
       planner::step_traffic(planner::local_model(model, mesh, plan, work)))
    *d.add_traffic() = plan::to_message(t);
  return d;
}

v1::PlanEstimate estimate_plan(const nn::ModelConfig& config, const v1::PlanQuery& query) {
  TracedModel model(config);
  const planner::Machine machine = query_machine(query);
  const auto [mesh, plan] = query_plan(query, model.modules(), machine);
  const planner::Workload work = query_work(query, model.shape(), mesh);
  return plan::to_message(planner::estimate(model, mesh, plan, work, machine), machine.name,
                          query_memory_limit(query, machine, mesh.ranks()));
}

v1::PlanSearch search_plans(const std::string& name, const nn::ModelConfig& config,
                            const v1::PlanSearchQuery& query,
                            std::function<void(std::int64_t)> before_plan) {
  TracedModel model(config);
  const planner::Machine machine = query_machine(query.query());
  planner::SearchRequest request = search_request(query, model, machine);
  request.before_plan = std::move(before_plan);
  const planner::SearchResult result = planner::search_plans(model, request, machine);
  v1::PlanSearch m;
  m.set_model(name);
  m.set_ranks(request.ranks);
  m.set_memory_limit_bytes(request.memory_limit);
  m.set_cluster(machine.name);
  m.set_plans_tried(result.plans_tried);
  m.set_meshes_that_fit(static_cast<std::int64_t>(result.candidates.size()));
  m.set_rejected_count(static_cast<std::int64_t>(result.rejected.size()));
  const auto limit = [](std::size_t size, int most) {
    return std::min(size, static_cast<std::size_t>(most));
  };
  const int most = query.has_most_plans() ? query.most_plans() : kDefaultPlans;
  for (std::size_t i = 0; i < limit(result.candidates.size(), most); ++i)
    *m.add_plans() =
        plan::to_message(result.candidates[i].estimate, machine.name, request.memory_limit);
  for (std::size_t i = 0; i < limit(result.rejected.size(), query.most_rejected()); ++i) {
    v1::RejectedMesh& rejected = *m.add_rejected();
    *rejected.mutable_mesh() = plan::to_message(result.rejected[i].mesh);
    rejected.set_reason(result.rejected[i].reason);
    rejected.set_least_memory_bytes(result.rejected[i].least_memory);
  }
  return m;
}

}  // namespace meshloom::plan
