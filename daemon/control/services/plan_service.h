// SPDX-License-Identifier: Apache-2.0
// PlanService: plans for the daemon's models and ranks.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "daemon/control/jobs/local_model_folders.h"
#include "daemon/control/jobs/local_resources.h"
#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/control/stores/uses.h"
#include "daemon/nn/models/model_config.h"
#include "v1/plan_service.grpc.pb.h"

namespace meshloom::control {

/// Calls that compute hold no thread of gRPC.
using PlanServiceBase = v1::PlanService::WithCallbackMethod_DescribePlan<
    v1::PlanService::WithCallbackMethod_EstimatePlan<
        v1::PlanService::WithCallbackMethod_SearchPlans<
            v1::PlanService::WithCallbackMethod_CreatePlan<v1::PlanService::Service>>>>;

class PlanServiceImpl final : public PlanServiceBase, public ClientService {
 public:
  static constexpr std::chrono::milliseconds kSearchTime{20'000};

  /// Plans are estimated for `resources`; `uses`: that of the plans. A search that takes longer
  /// than `search_time` is ended.
  PlanServiceImpl(PlanStore& plans, LocalModelFolders& folders, const LocalResources& resources,
                  const Uses& uses, std::chrono::milliseconds search_time = kSearchTime)
      : plans_(plans),
        folders_(folders),
        resources_(resources),
        uses_(uses),
        search_time_(search_time) {}

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<UnaryCall> describe_plan(const Caller& caller,
                                           const v1::DescribePlanRequest& request,
                                           v1::DescribePlanResponse* response);
  std::shared_ptr<UnaryCall> estimate_plan(const Caller& caller,
                                           const v1::EstimatePlanRequest& request,
                                           v1::EstimatePlanResponse* response);
  std::shared_ptr<UnaryCall> search_plans(const Caller& caller,
                                          const v1::SearchPlansRequest& request,
                                          v1::SearchPlansResponse* response);
  std::shared_ptr<UnaryCall> create_plan(const Caller& caller, const v1::CreatePlanRequest& request,
                                         v1::CreatePlanResponse* response);
  v1::GetPlanResponse get_plan(const Caller& caller, const v1::GetPlanRequest& request);
  v1::ListPlansResponse list_plans(const Caller& caller, const v1::ListPlansRequest& request);
  void delete_plan(const Caller& caller, const v1::DeletePlanRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerUnaryReactor* DescribePlan(grpc::CallbackServerContext* context,
                                         const v1::DescribePlanRequest* request,
                                         v1::DescribePlanResponse* response) override;
  grpc::ServerUnaryReactor* EstimatePlan(grpc::CallbackServerContext* context,
                                         const v1::EstimatePlanRequest* request,
                                         v1::EstimatePlanResponse* response) override;
  grpc::ServerUnaryReactor* SearchPlans(grpc::CallbackServerContext* context,
                                        const v1::SearchPlansRequest* request,
                                        v1::SearchPlansResponse* response) override;
  grpc::ServerUnaryReactor* CreatePlan(grpc::CallbackServerContext* context,
                                       const v1::CreatePlanRequest* request,
                                       v1::CreatePlanResponse* response) override;
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                       v1::GetPlanResponse* response) override;
  grpc::Status ListPlans(grpc::ServerContext*, const v1::ListPlansRequest* request,
                         v1::ListPlansResponse* response) override;
  grpc::Status DeletePlan(grpc::ServerContext*, const v1::DeletePlanRequest* request,
                          v1::DeletePlanResponse*) override;

  /// Calls that compute end soon. Does not wait.
  void request_stop() override;
  /// After the server's shutdown.
  void stop() override;

 private:
  nn::ModelConfig config_of(const v1::ModelSource& model);
  /// With what this daemon has where the client gave nothing.
  v1::PlanQuery with_defaults(v1::PlanQuery query) const;
  /// Throws DeadlineExceeded (SEARCH_TIME_LIMIT) for a search that was to be done by `end`.
  void check_search_time(std::chrono::steady_clock::time_point end, std::int64_t plans_tried) const;
  v1::PlanEstimate estimate(const v1::ModelSource& model, const v1::PlanQuery& query,
                            const CallHost::GoOn& go_on);
  v1::PlanSearch search(const v1::SearchPlansRequest& request, const CallHost::GoOn& go_on);
  v1::CreatePlanResponse create(const Caller& caller, const v1::CreatePlanRequest& request,
                                const CallHost::GoOn& go_on);

  PlanStore& plans_;
  LocalModelFolders& folders_;
  const LocalResources& resources_;
  const Uses& uses_;
  const std::chrono::milliseconds search_time_;
  CallHost queries_{{"queries about plans"}};
  std::mutex searching_;  ///< one search at a time: they take a core for seconds
  /// With threads by which another one is refused meanwhile.
  CallHost searches_{{.what = "searches for plans", .threads = 4}};
};

}  // namespace meshloom::control
