// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/plan_service.h"

#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/grpc_door.h"
#include "daemon/control/services/job_view.h"
#include "daemon/control/stores/names.h"
#include "daemon/plan/parallel_plan.h"
#include "daemon/plan/plan_messages.h"
#include "daemon/plan/plan_query.h"
#include "daemon/train/config/refit.h"
#include "daemon/train/run/run.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kMostSearchedRanks = 4096;
constexpr std::size_t kLargestPlan = 512 << 10;  // a plan is stored and sent whole

/// What a model is called in an answer.
std::string model_text(const v1::ModelSource& model) {
  if (!model.name().empty()) return model_resource(parse_model_name(model.name()));
  if (!model.preset().empty()) return model.preset();
  return model.config().empty() ? model.hf_folder() : model.config();
}

v1::Plan message(const v1::StoredPlan& stored) {
  v1::Plan plan;
  if (!stored.id().empty()) plan.set_name(plan_resource(stored.id()));
  plan.set_create_time(stored.create_time());
  plan.set_client(stored.client());
  *plan.mutable_model() = stored.model();
  *plan.mutable_mesh() = stored.mesh();
  *plan.mutable_plan() = stored.plan();
  plan.set_owner(stored.owner());
  plan.set_shared(stored.shared());
  *plan.mutable_shared_with() = stored.shared_with();
  return plan;
}

}  // namespace

nn::ModelConfig PlanServiceImpl::config_of(const v1::ModelSource& model) {
  return base::with_field("model", [&] { return folders_.model_config(model); });
}

v1::PlanQuery PlanServiceImpl::with_defaults(v1::PlanQuery query) const {
  if (!query.has_mesh()) query.mutable_mesh()->set_dp(resources_.world_size);
  const bool is_here = !query.has_cluster() && query.cluster_name().empty();
  if (const std::int64_t bytes = host_memory_of_rank(resources_.hosts);
      bytes > 0 && is_here && !query.has_memory_limit_bytes())
    query.set_memory_limit_bytes(bytes);
  return query;
}

void PlanServiceImpl::check_search_time(std::chrono::steady_clock::time_point end,
                                        std::int64_t plans_tried) const {
  if (std::chrono::steady_clock::now() < end) return;
  throw DeadlineExceeded(
      fmt::format("the search was not done within {} s, after {} plans: ask for fewer ranks, give "
                  "max_tensor_parallel, query.micro_batch_size or "
                  "query.plan.activation_checkpoint, or search without the daemon (meshloom plan "
                  "search), where there is no such limit",
                  std::chrono::duration<double>(search_time_).count(), plans_tried),
      "SEARCH_TIME_LIMIT",
      {{"limit_ms", std::to_string(search_time_.count())},
       {"plans_tried", std::to_string(plans_tried)}});
}

std::shared_ptr<UnaryCall> PlanServiceImpl::describe_plan(const Caller& caller,
                                                          const v1::DescribePlanRequest& request,
                                                          v1::DescribePlanResponse* response) {
  return queries_.call(
      "DescribePlan", caller, request, [&request, response, this](const CallHost::GoOn& go_on) {
        const nn::ModelConfig config = config_of(request.model());
        go_on();
        *response->mutable_description() = plan::describe_plan(
            model_text(request.model()), config, with_defaults(request.query()), request.rank());
      });
}

v1::PlanEstimate PlanServiceImpl::estimate(const v1::ModelSource& model, const v1::PlanQuery& query,
                                           const CallHost::GoOn& go_on) {
  const nn::ModelConfig config = config_of(model);
  go_on();
  return plan::estimate_plan(config, query);
}

std::shared_ptr<UnaryCall> PlanServiceImpl::estimate_plan(const Caller& caller,
                                                          const v1::EstimatePlanRequest& request,
                                                          v1::EstimatePlanResponse* response) {
  return queries_.call("EstimatePlan", caller, request,
                       [&request, response, this](const CallHost::GoOn& go_on) {
                         *response->mutable_estimate() =
                             estimate(request.model(), with_defaults(request.query()), go_on);
                       });
}

v1::PlanSearch PlanServiceImpl::search(const v1::SearchPlansRequest& request,
                                       const CallHost::GoOn& go_on) {
  v1::PlanSearchQuery query = request.query();
  if (!query.has_ranks()) query.set_ranks(resources_.world_size);
  if (query.ranks() < 1 || query.ranks() > kMostSearchedRanks)
    base::refuse_field("query.ranks", "must be in [1, {}], got {}", kMostSearchedRanks,
                       query.ranks());
  const bool mesh = query.query().has_mesh();
  *query.mutable_query() = with_defaults(query.query());
  if (!mesh) query.mutable_query()->clear_mesh();
  const nn::ModelConfig config = config_of(request.model());
  const std::unique_lock one(searching_, std::try_to_lock);
  if (!one.owns_lock())
    throw ResourceExhausted("another search is under way; try again later", "SEARCH_UNDER_WAY");
  const auto end = std::chrono::steady_clock::now() + search_time_;
  return plan::search_plans(model_text(request.model()), config, query,
                            [&](std::int64_t plans_tried) {
                              go_on();
                              check_search_time(end, plans_tried);
                            });
}

std::shared_ptr<UnaryCall> PlanServiceImpl::search_plans(const Caller& caller,
                                                         const v1::SearchPlansRequest& request,
                                                         v1::SearchPlansResponse* response) {
  return searches_.call("SearchPlans", caller, request,
                        [&request, response, this](const CallHost::GoOn& go_on) {
                          *response->mutable_search() = search(request, go_on);
                        });
}

v1::CreatePlanResponse PlanServiceImpl::create(const Caller& caller,
                                               const v1::CreatePlanRequest& request,
                                               const CallHost::GoOn& go_on) {
  const RequestKey key = request_key_of("CreatePlan", request, caller);
  const v1::PlanQuery query = with_defaults(request.query());
  v1::CreatePlanResponse response;
  // A repeat gets its plan, also where the model has gone or the daemon has other ranks meanwhile.
  if (const auto first = request.validate_only() ? std::nullopt : plans_.find_request(key)) {
    *response.mutable_plan() = message(*first);
    try {
      *response.mutable_estimate() = estimate(request.model(), query, go_on);
    } catch (const Error& error) {
      spdlog::debug("{} is told without an estimate: {}", response.plan().name(), error.what());
    }
    return response;
  }
  const nn::ModelConfig config = config_of(request.model());
  const planner::MeshSizes mesh = plan::make_mesh_sizes(query.mesh());
  if (mesh.ranks() != resources_.world_size)
    throw train::NeedsOtherRanks(
        fmt::format("query.mesh: it has {} ranks, this daemon has {}", mesh.ranks(),
                    resources_.world_size),
        {{"field", "query.mesh"}, {"ranks", std::to_string(mesh.ranks())}});
  *response.mutable_estimate() = plan::estimate_plan(config, query);
  v1::StoredPlan plan;
  plan.set_client(caller.name());
  plan.set_owner(caller.identity().owner());
  plan.set_shared(request.shared());
  *plan.mutable_model() = request.model();
  *plan.mutable_mesh() = plan::to_message(mesh);
  *plan.mutable_plan() = query.plan();
  if (plan.ByteSizeLong() > kLargestPlan)
    base::refuse_field("query.plan", "the plan takes {} bytes, at most {} are kept",
                       plan.ByteSizeLong(), kLargestPlan);
  *response.mutable_plan() =
      message(request.validate_only() ? plan : plans_.create(std::move(plan), key));
  return response;
}

std::shared_ptr<UnaryCall> PlanServiceImpl::create_plan(const Caller& caller,
                                                        const v1::CreatePlanRequest& request,
                                                        v1::CreatePlanResponse* response) {
  return queries_.call("CreatePlan", caller, request,
                       [caller, &request, response, this](const CallHost::GoOn& go_on) {
                         *response = create(caller, request, go_on);
                       });
}

v1::GetPlanResponse PlanServiceImpl::get_plan(const Caller& caller,
                                              const v1::GetPlanRequest& request) {
  v1::GetPlanResponse response;
  const v1::StoredPlan plan = plans_.get(parse_plan_name(request.name()));
  *response.mutable_plan() = message(plan);
  if (const auto user = uses_.config_with_plan(plan.id()))
    response.mutable_plan()->add_users(*user);
  hide_shares(caller.identity(), response.mutable_plan());
  return response;
}

v1::ListPlansResponse PlanServiceImpl::list_plans(const Caller& caller,
                                                  const v1::ListPlansRequest& request) {
  v1::ListPlansResponse response;
  const auto position = parse_page_token("plans", request.page_token());
  const auto [plans, next] = plans_.list(position, page_size_of(request),
                                         shown_to(caller.identity(), request.all(), true));
  for (const v1::StoredPlan& plan : plans) {
    v1::Plan& item = *response.add_plans() = message(plan);
    hide_shares(caller.identity(), &item);
  }
  if (next > 0) response.set_next_page_token(make_page_token("plans", next));
  return response;
}

void PlanServiceImpl::delete_plan(const Caller& caller, const v1::DeletePlanRequest& request) {
  const RequestKey key = request_key_of("DeletePlan", request, caller);
  plans_.remove(parse_plan_name(request.name()), key);
}

void PlanServiceImpl::request_stop() {
  queries_.request_stop();
  searches_.request_stop();
}

void PlanServiceImpl::stop() {
  queries_.stop();
  searches_.stop();
}

// gRPC calls these adapters of the handlers.

grpc::ServerUnaryReactor* PlanServiceImpl::DescribePlan(grpc::CallbackServerContext* context,
                                                        const v1::DescribePlanRequest* request,
                                                        v1::DescribePlanResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return describe_plan(caller, *request, response); });
}

grpc::ServerUnaryReactor* PlanServiceImpl::EstimatePlan(grpc::CallbackServerContext* context,
                                                        const v1::EstimatePlanRequest* request,
                                                        v1::EstimatePlanResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return estimate_plan(caller, *request, response); });
}

grpc::ServerUnaryReactor* PlanServiceImpl::SearchPlans(grpc::CallbackServerContext* context,
                                                       const v1::SearchPlansRequest* request,
                                                       v1::SearchPlansResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return search_plans(caller, *request, response); });
}

grpc::ServerUnaryReactor* PlanServiceImpl::CreatePlan(grpc::CallbackServerContext* context,
                                                      const v1::CreatePlanRequest* request,
                                                      v1::CreatePlanResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return create_plan(caller, *request, response); });
}

grpc::Status PlanServiceImpl::GetPlan(grpc::ServerContext* context,
                                      const v1::GetPlanRequest* request,
                                      v1::GetPlanResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = get_plan(caller, *request); });
}

grpc::Status PlanServiceImpl::ListPlans(grpc::ServerContext* context,
                                        const v1::ListPlansRequest* request,
                                        v1::ListPlansResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { *response = list_plans(caller, *request); });
}

grpc::Status PlanServiceImpl::DeletePlan(grpc::ServerContext* context,
                                         const v1::DeletePlanRequest* request,
                                         v1::DeletePlanResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller& caller) { delete_plan(caller, *request); });
}

}  // namespace meshloom::control
