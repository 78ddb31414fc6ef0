// SPDX-License-Identifier: Apache-2.0
// PlanService: plans for the daemon's models and ranks.
#pragma once

#include <mutex>

#include "daemon/control/jobs/local_admission.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/control/stores/run_store.h"
#include "planner/estimate/model_shape.h"
#include "v1/plan_service.grpc.pb.h"

namespace meshloom::control {

class PlanServiceImpl final : public v1::PlanService::Service {
 public:
  /// `jobs` and `runs`: what uses plans.
  PlanServiceImpl(PlanStore& plans, LocalAdmission& admission, const JobStore& jobs,
                  const RunStore& runs)
      : plans_(plans), admission_(admission), jobs_(jobs), runs_(runs) {}

  grpc::Status DescribePlan(grpc::ServerContext*, const v1::DescribePlanRequest* request,
                            v1::DescribePlanResponse* response) override;
  grpc::Status EstimatePlan(grpc::ServerContext*, const v1::EstimatePlanRequest* request,
                            v1::EstimatePlanResponse* response) override;
  grpc::Status SearchPlans(grpc::ServerContext*, const v1::SearchPlansRequest* request,
                           v1::SearchPlansResponse* response) override;
  grpc::Status CreatePlan(grpc::ServerContext* context, const v1::CreatePlanRequest* request,
                          v1::CreatePlanResponse* response) override;
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                       v1::GetPlanResponse* response) override;
  grpc::Status ListPlans(grpc::ServerContext*, const v1::ListPlansRequest* request,
                         v1::ListPlansResponse* response) override;
  grpc::Status DeletePlan(grpc::ServerContext*, const v1::DeletePlanRequest* request,
                          v1::DeletePlanResponse*) override;

 private:
  planner::ModelShape shape_of(const v1::ModelSource& model);
  /// With what this daemon has where the client gave nothing.
  v1::PlanQuery with_defaults(v1::PlanQuery query) const;
  std::optional<std::string> user_of(const std::string& plan) const;
  v1::CreatePlanResponse create(const std::string& client, const v1::CreatePlanRequest& request);

  PlanStore& plans_;
  LocalAdmission& admission_;
  const JobStore& jobs_;
  const RunStore& runs_;
  std::mutex searching_;  ///< one search at a time: they take a core for seconds
};

}  // namespace meshloom::control
