// SPDX-License-Identifier: Apache-2.0
// Plans of the daemon: computed, kept, named by jobs; over a restart.
#include "daemon/control/services/plan_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/control/jobs/local_admission.h"
#include "daemon/control/stores/names.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/open_job_store.h"
#include "tests/unit/control/run_client_fixture.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::control {
namespace {

using test::reason_of;

using ::testing::HasSubstr;

class PlanServiceTest : public ::testing::Test {
 protected:
  using Stub = v1::PlanService::Stub;

  PlanServiceTest() {
    std::ofstream(data_.path() / "config.json") << testing::tiny_gpt2_config();
    std::ofstream(data_.path() / "text.txt") << std::string(2000, 'a');
    open();
  }
  void open() {
    server_.reset();
    service_.reset();
    admission_.reset();
    store_.reset();
    uses_ = std::make_shared<const Uses>(Uses::Configs{
        .jobs = [this](const ConfigTest& test) { return store_->user_by_config(test); },
        .runs = [this](const ConfigTest& test) { return runs_->user_by_config(test); }});
    plans_ = std::make_unique<PlanStore>(uses_);
    runs_ = std::make_unique<RunStore>();
    store_ = std::make_unique<OpenJobStore>(
        state_.journal(), JobStore::Options{.jobs_dir = state_.jobs(), .uses = uses_},
        std::vector<JournaledStore*>{plans_.get(), runs_.get()});
    admission_ = std::make_unique<LocalAdmission>(
        *store_, state_,
        LocalResources{.world_size = 2,
                       .data_dir = data_.path(),
                       .hosts = {{"here", 2, {std::int64_t{1} << 32, "a limit"}}},
                       .plans = plans_.get()});
    service_ = std::make_unique<PlanServiceImpl>(*plans_, admission_->folders(),
                                                 admission_->resources(), *uses_, search_time_);
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{resolve_listen_address("127.0.0.1:0", "listen"), {service_.get()}, 16});
    stub_ = v1::PlanService::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials()));
  }
  template <typename Request, typename Response>
  grpc::Status call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response,
                    std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    return (*stub_.*method)(&context, request, response);
  }
  static v1::CreatePlanRequest request(int tp, const std::string& id = "") {
    v1::CreatePlanRequest request;
    request.set_request_id(id);
    request.mutable_model()->set_config("config.json");
    request.mutable_query()->mutable_mesh()->set_tp(tp);
    if (tp == 1) request.mutable_query()->mutable_mesh()->set_dp(2);
    return request;
  }
  v1::Plan stored(int tp) {
    v1::StoredPlan plan;
    *plan.mutable_mesh() = request(tp).query().mesh();
    plan = plans_->create(plan, {});
    v1::Plan told;
    told.set_name(plan_resource(plan.id()));
    return told;
  }
  static v1::JobSpec job(const std::string& plan) {
    v1::JobSpec spec;
    v1::RunConfig& run = *spec.mutable_run();
    run.mutable_model()->set_config("config.json");
    run.mutable_data()->set_path("text.txt");
    run.mutable_training()->set_steps(1);
    run.mutable_training()->set_global_batch_size(2);
    run.mutable_plan()->set_name(plan);
    return spec;
  }

  const test::TempFolder data_;
  const test::TempFolder folder_;
  StateDir state_{folder_.path() / "state"};
  std::chrono::milliseconds search_time_ = PlanServiceImpl::kSearchTime;
  std::shared_ptr<const Uses> uses_;
  std::unique_ptr<PlanStore> plans_;
  std::unique_ptr<RunStore> runs_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<LocalAdmission> admission_;
  std::unique_ptr<PlanServiceImpl> service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<Stub> stub_;
};

TEST_F(PlanServiceTest, QueriesAreAnsweredForTheRanksThereAre) {
  v1::EstimatePlanRequest estimate;
  estimate.mutable_model()->set_config("config.json");
  v1::EstimatePlanResponse estimated;
  ASSERT_TRUE(call(&Stub::EstimatePlan, estimate, &estimated).ok());
  EXPECT_EQ(estimated.estimate().ranks(), 2);
  EXPECT_EQ(estimated.estimate().mesh().dp(), 2);
  EXPECT_EQ(estimated.estimate().memory_limit_bytes(), std::int64_t{1} << 31);
  v1::SearchPlansRequest search;
  search.mutable_model()->set_config("config.json");
  v1::SearchPlansResponse found;
  ASSERT_TRUE(call(&Stub::SearchPlans, search, &found).ok());
  EXPECT_EQ(found.search().ranks(), 2);
  EXPECT_GT(found.search().plans_size(), 0);
  v1::DescribePlanRequest describe;
  describe.mutable_model()->set_config("config.json");
  describe.set_rank(1);
  v1::DescribePlanResponse described;
  ASSERT_TRUE(call(&Stub::DescribePlan, describe, &described).ok());
  EXPECT_EQ(described.description().model(), "config.json");
  describe.set_rank(2);
  EXPECT_EQ(call(&Stub::DescribePlan, describe, &described).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  describe.mutable_model()->set_config("../config.json");
  EXPECT_FALSE(call(&Stub::DescribePlan, describe, &described).ok());
  search.mutable_query()->set_ranks(1'000'000);
  EXPECT_EQ(call(&Stub::SearchPlans, search, &found).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(PlanServiceTest, PlansAreKeptByWhatTheySay) {
  const v1::Plan plan = stored(2);
  EXPECT_EQ(stored(2).name(), plan.name());
  EXPECT_NE(stored(1).name(), plan.name());
  open();
  const std::string id = parse_plan_name(plan.name());
  EXPECT_EQ(plans_->get(id).id(), id);
  EXPECT_EQ(plans_->get(id.substr(0, 8)).id(), id);
  EXPECT_EQ(plans_->list(0, 10).first.size(), 2u);
  EXPECT_EQ(plans_->list(0, 1).second, 1);
  EXPECT_EQ(reason_of([&] { plans_->get("0123456789"); }), "PLAN_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { parse_plan_name("plans/xyz"); }), "NAME_INVALID");
  EXPECT_EQ(reason_of([&] { parse_plan_name("abc"); }), "NAME_INVALID");
}

TEST_F(PlanServiceTest, JobsNamePlansWhichAreKeptAsLong) {
  const v1::Plan plan = stored(2);
  const std::string id = parse_plan_name(plan.name());
  Admitted admitted = admission_->resolver().admit(job(id.substr(0, 10)));
  EXPECT_EQ(admitted.resolved.mesh().tp(), 2);
  EXPECT_EQ(admitted.resolved.plan().name(), id);
  EXPECT_EQ(reason_of([&] { plans_->remove(id, {}); }), "PLAN_IN_USE");
  store_->submit(job(id), admitted.resolved, {});
  admitted.hold.release();
  v1::DeletePlanRequest remove;
  v1::DeletePlanResponse removed;
  remove.set_name(plan.name());
  const grpc::Status status = call(&Stub::DeletePlan, remove, &removed);
  EXPECT_EQ(info_of(status).reason(), "PLAN_IN_USE");
  v1::GetPlanRequest get;
  get.set_name(id.substr(0, 12));
  v1::GetPlanResponse got;
  ASSERT_TRUE(call(&Stub::GetPlan, get, &got).ok());
  EXPECT_EQ(got.plan().users(0), "jobs/job-1");
  open();
  EXPECT_EQ(info_of(call(&Stub::DeletePlan, remove, &removed)).reason(), "PLAN_IN_USE");
  store_->cancel("job-1", {});
  EXPECT_TRUE(call(&Stub::DeletePlan, remove, &removed).ok());
  EXPECT_EQ(reason_of([&] { plans_->get(id); }), "PLAN_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { admission_->resolver().admit(job(id)); }), "PLAN_NOT_FOUND");
}

TEST_F(PlanServiceTest, AJobGivesAPlanOrAMeshButNotBoth) {
  const std::string id = parse_plan_name(stored(2).name());
  v1::JobSpec both = job(id);
  both.mutable_run()->mutable_mesh()->set_dp(2);
  EXPECT_EQ(reason_of([&] { admission_->resolver().admit(both); }), "INVALID_ARGUMENT");
  both.mutable_run()->clear_mesh();
  both.mutable_run()->mutable_plan()->set_dtype("float32");
  EXPECT_EQ(reason_of([&] { admission_->resolver().admit(both); }), "INVALID_ARGUMENT");
}

TEST_F(PlanServiceTest, ASearchThatTakesTooLongIsEnded) {
  // A small part of what the search takes on any machine.
  search_time_ = std::chrono::milliseconds(1);
  open();
  v1::SearchPlansRequest search;
  search.mutable_model()->set_config("config.json");
  search.mutable_query()->set_ranks(4096);
  search.mutable_query()->mutable_query()->set_global_batch_size(1 << 20);
  v1::SearchPlansResponse found;
  const grpc::Status status = call(&Stub::SearchPlans, search, &found);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(info_of(status).reason(), "SEARCH_TIME_LIMIT");
  EXPECT_THAT(status.error_message(), HasSubstr("within 0.001 s"));
  ASSERT_TRUE(info_of(status).metadata().contains("plans_tried"));
  EXPECT_GE(std::stoll(info_of(status).metadata().at("plans_tried")), 0);
  EXPECT_EQ(info_of(call(&Stub::SearchPlans, search, &found)).reason(), "SEARCH_TIME_LIMIT")
      << "the next one begins and has a limit of its own";
}

TEST_F(PlanServiceTest, ASearchEndsWithItsClient) {
  search_time_ = std::chrono::minutes(10);
  open();
  v1::SearchPlansRequest search;
  search.mutable_model()->set_config("config.json");
  search.mutable_query()->set_ranks(4096);
  search.mutable_query()->mutable_query()->set_global_batch_size(1 << 20);
  v1::SearchPlansResponse found;
  EXPECT_EQ(call(&Stub::SearchPlans, search, &found, std::chrono::milliseconds(5)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // The next one has its place soon.
  search.mutable_query()->set_ranks(2);
  EXPECT_TRUE(test::eventually([&] { return call(&Stub::SearchPlans, search, &found).ok(); }));
}

TEST_F(PlanServiceTest, ADaemonThatStopsSaysToTryAgain) {
  admission_->request_stop();
  v1::EstimatePlanRequest estimate;
  estimate.mutable_model()->set_config("config.json");
  v1::EstimatePlanResponse estimated;
  const grpc::Status status = call(&Stub::EstimatePlan, estimate, &estimated);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(info_of(status).reason(), "STOPPING");
  v1::CreatePlanResponse created;
  const grpc::Status creation = call(&Stub::CreatePlan, request(2), &created);
  EXPECT_EQ(creation.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(info_of(creation).reason(), "STOPPING");
  open();
  service_->request_stop();
  EXPECT_EQ(info_of(call(&Stub::EstimatePlan, estimate, &estimated)).reason(), "STOPPING");
}

}  // namespace
}  // namespace meshloom::control
