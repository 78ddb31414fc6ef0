// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/base/error.h"
#include "planner/estimate/rotate_choice.h"

namespace meshloom::planner {
namespace {

/// Tokens of a sample that a rank of cp has at least: with fewer, its matrix products are small.
constexpr std::int64_t kLeastTokens = 1024;

std::vector<int> divisors(std::int64_t n) {
  std::vector<int> small, large;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    small.push_back(static_cast<int>(d));
    if (d != n / d) large.push_back(static_cast<int>(n / d));
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

auto order_of(const Estimate& e) {
  return std::tuple(e.time.total, total_bytes_sent(e.traffic), e.memory.total());
}

class Search {
 public:
  Search(ModelGraphs& model, const SearchRequest& request, const Machine& machine)
      : model_(model),
        parameter_count_(parameter_count(model.modules())),
        request_(request),
        share_(share_of_rank(machine, request.ranks)),
        limit_(request.memory_limit > 0 ? request.memory_limit : share_.memory_bytes) {}

  SearchResult run() {
    for (const int tp : divisors(request_.ranks)) {
      spreads_.clear();
      for (const int fsdp : divisors(request_.ranks / tp))
        for (const int cp : divisors(request_.ranks / tp / fsdp))
          if (cp == 1 || request_.sequence / cp >= kLeastTokens)
            try_mesh({static_cast<int>(request_.ranks / tp / fsdp / cp), fsdp, cp, tp});
    }
    std::sort(result_.candidates.begin(), result_.candidates.end(),
              [](const Candidate& a, const Candidate& b) {
                return order_of(a.estimate) < order_of(b.estimate);
              });
    std::stable_sort(
        result_.rejected.begin(), result_.rejected.end(),
        [](const Rejected& a, const Rejected& b) { return nearness(a) < nearness(b); });
    return std::move(result_);
  }

 private:
  static std::int64_t nearness(const Rejected& r) {
    return r.least_memory > 0 ? r.least_memory : INT64_MAX;
  }

  void reject(const MeshSizes& mesh, std::string reason, std::int64_t least = 0) {
    result_.rejected.push_back({mesh, std::move(reason), least});
  }

  void try_mesh(const MeshSizes& mesh);
  void try_plan(const MeshSizes& mesh, const ParallelPlan& given, const Workload& work);
  std::vector<ParallelPlan> plans_of(const MeshSizes& mesh) const;

  ModelGraphs& model_;
  std::int64_t parameter_count_;
  const SearchRequest& request_;
  Machine share_;
  std::int64_t limit_;
  SearchResult result_;
  struct Pass {
    std::shared_ptr<const ModelPass> pass;
    std::map<ActivationCheckpoint, ActivationEstimate> activations;  ///< plans have one dtype
  };
  /// What styles make of the model and of micro batches of some size: the same for all dp and fsdp.
  struct Spread {
    std::vector<PatternStyles> styles;  ///< empty: the default ones
    bool sequence_parallel;
    StyledModel styled;
    std::map<std::pair<std::int64_t, std::int64_t>, Pass> passes;  ///< by rows and tokens
    std::optional<LocalModel> sized = {};  ///< of the mesh that is tried: plans share its sizes
  };
  Spread& spread_of(const MeshSizes& mesh, const ParallelPlan& plan);
  Pass& pass_of(Spread& spread, std::int64_t rows, std::int64_t tokens);
  /// How keys travel depends on cp, tp and the micro batch alone: plans have one dtype.
  const ContextParallelPlan& rotate_of(const MeshSizes& mesh, const ParallelPlan& plan,
                                       const Workload& work);
  std::map<std::tuple<int, int, std::int64_t>, ContextParallelPlan> rotates_;
  std::vector<Spread> spreads_;  ///< of the tp that is tried
  // Of the mesh that is tried.
  std::optional<Estimate> best_;
  std::int64_t least_ = 0;
  ParallelPlan least_plan_;
  Workload least_work_;
};

std::vector<ParallelPlan> Search::plans_of(const MeshSizes& mesh) const {
  ParallelPlan whole{
      .tensor_parallel = mesh.tp > 1, .fully_shard = mesh.fsdp > 1, .dtype = request_.dtype};
  std::vector<ParallelPlan> spreads = {whole};
  if (mesh.tp > 1) {
    spreads.push_back(whole);
    spreads.back().sequence_parallel = true;
    if (!request_.styles.empty()) {
      spreads.push_back(whole);
      spreads.back().styles = request_.styles;
    }
  }
  std::vector<ParallelPlan> plans;
  for (ParallelPlan& plan : spreads) {
    for (const bool reshard : {false, true}) {
      if (!reshard && mesh.fsdp == 1) continue;
      for (const ActivationCheckpoint c :
           {ActivationCheckpoint::kNone, ActivationCheckpoint::kSelective,
            ActivationCheckpoint::kFull}) {
        if (request_.checkpointing && *request_.checkpointing != c) continue;
        plan.shards.reshard_after_forward = reshard;
        plan.checkpointing = c;
        plans.push_back(plan);
      }
    }
  }
  return plans;
}

Search::Spread& Search::spread_of(const MeshSizes& mesh, const ParallelPlan& plan) {
  for (Spread& spread : spreads_)
    if (spread.sequence_parallel == plan.sequence_parallel && spread.styles == plan.styles)
      return spread;
  return spreads_.emplace_back(
      Spread{plan.styles, plan.sequence_parallel, styled_model(model_, plan, mesh.tp), {}, {}});
}

Search::Pass& Search::pass_of(Spread& spread, std::int64_t rows, std::int64_t tokens) {
  Pass& known = spread.passes[{rows, tokens}];
  if (!known.pass)
    known.pass = std::make_shared<const ModelPass>(
        model_pass(model_.of(rows, tokens), model_.modules(), spread.styled));
  return known;
}

const ContextParallelPlan& Search::rotate_of(const MeshSizes& mesh, const ParallelPlan& plan,
                                             const Workload& work) {
  const auto [known, is_new] = rotates_.try_emplace({mesh.cp, mesh.tp, work.micro_batch});
  if (is_new)
    known->second =
        resolve_context_parallel(plan, model_.shape(), mesh, work, share_.topology.ranks_per_host)
            .context_parallel;
  return known->second;
}

void Search::try_plan(const MeshSizes& mesh, const ParallelPlan& given, const Workload& work) {
  if (request_.before_plan) request_.before_plan(result_.plans_tried);
  ++result_.plans_tried;
  ParallelPlan plan = given;
  if (mesh.cp > 1) plan.context_parallel = rotate_of(mesh, given, work);
  Spread& spread = spread_of(mesh, plan);
  Pass& pass = pass_of(spread, work.micro_batch, tokens_per_rank(mesh, work));
  const auto [activations, is_new] = pass.activations.try_emplace(plan.checkpointing);
  if (is_new)
    activations->second =
        estimate_activations(*pass.pass, plan.checkpointing, plan.dtype, work.device);
  if (!spread.sized || spread.sized->mesh != mesh)
    spread.sized = sized_model(model_, spread.styled, mesh, plan, work);
  LocalModel& local = *spread.sized;
  local.plan = plan;
  local.work = work;
  local.rows = work.micro_batch * tokens_per_rank(mesh, work);
  local.pass = pass.pass;
  local.activations = activations->second;
  const MemoryEstimate memory = estimate_memory(local);
  if (least_ == 0 || memory.total() < least_) {
    least_ = memory.total();
    least_plan_ = plan;
    least_work_ = work;
  }
  if (limit_ > 0 && memory.total() > limit_) return;
  Estimate e{.mesh = mesh, .plan = plan, .work = work};
  e.parameters = parameter_count_;
  e.local_parameters = local.all().sharded;
  e.memory = memory;
  e.traffic = step_traffic(local);
  e.time = estimate_step_time(local, e.traffic, share_);
  if (!best_ || order_of(e) < order_of(*best_)) best_ = std::move(e);
}

void Search::try_mesh(const MeshSizes& mesh) {
  const std::int64_t most_tp =
      request_.max_tensor_parallel > 0 ? request_.max_tensor_parallel : model_.shape().heads;
  if (mesh.tp > most_tp)
    return reject(mesh, fmt::format("tp={} is more than {} {}", mesh.tp, most_tp,
                                    request_.max_tensor_parallel > 0 ? "allowed" : "heads"));
  const std::int64_t feeding = std::int64_t{mesh.dp} * mesh.fsdp;
  if (feeding > request_.global_batch)
    return reject(mesh,
                  fmt::format("a global batch of {} leaves some of {} data-parallel ranks without "
                              "samples",
                              request_.global_batch, feeding));
  best_.reset();
  least_ = 0;
  const std::int64_t samples = samples_per_rank(mesh, {request_.global_batch, 1, 1});
  if (request_.micro_batch > samples)
    return reject(mesh, fmt::format("a micro batch of {} is more than a rank's {} samples",
                                    request_.micro_batch, samples));
  // If none is asked for: powers of two up to the samples, and those themselves.
  std::vector<std::int64_t> choices;
  if (request_.micro_batch > 0) {
    choices = {request_.micro_batch};
  } else {
    for (std::int64_t m = 1; m < samples; m *= 2) choices.push_back(m);
    choices.push_back(samples);
  }
  for (const ParallelPlan& plan : plans_of(mesh))
    for (const std::int64_t micro : choices)
      try_plan(mesh, plan, {request_.global_batch, micro, request_.sequence, request_.optimizer});
  if (best_) {
    result_.candidates.push_back({std::move(*best_)});
  } else {
    reject(mesh,
           fmt::format("needs {:.2f} GiB of {:.2f} GiB, with {} and a micro batch of {}",
                       gib(least_), gib(limit_), to_string(least_plan_), least_work_.micro_batch),
           least_);
  }
}

}  // namespace

SearchResult search_plans(ModelGraphs& model, const SearchRequest& request,
                          const Machine& machine) {
  if (request.ranks < 1 || request.ranks > INT32_MAX)
    throw InvalidArgument(
        fmt::format("search: {} ranks, expected 1 to {}", request.ranks, INT32_MAX));
  if (request.micro_batch < 0 || request.memory_limit < 0 || request.max_tensor_parallel < 0)
    throw InvalidArgument("search: micro batch, memory limit and largest tp must not be negative");
  const Workload work{request.global_batch, 1, request.sequence};
  if (const auto reason = why_invalid(model.shape(), {}, {.dtype = request.dtype}, work))
    throw InvalidArgument("search: " + *reason, "INVALID_PLAN");
  return Search(model, request, machine).run();
}

}  // namespace meshloom::planner
