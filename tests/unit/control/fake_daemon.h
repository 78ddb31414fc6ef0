// SPDX-License-Identifier: Apache-2.0
// The control plane of a daemon in one process: ranks are threads with fake runs.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "daemon/control/jobs/job_driver.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_worker.h"
#include "daemon/control/runs/drain.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/services/checkpoint_service.h"
#include "daemon/control/services/generate_service.h"
#include "daemon/control/services/job_service.h"
#include "daemon/control/services/operation_service.h"
#include "daemon/control/services/run_service.h"
#include "daemon/control/services/upload_service.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/upload_store.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_admission.h"
#include "tests/unit/control/fake_run.h"
#include "tests/unit/control/open_job_store.h"

namespace meshloom::control {

/// What a test may set otherwise.
struct FakeDaemonOptions {
  std::function<void()> on_resolve = [] {};                ///< in the handler of SubmitJob
  std::int64_t most_upload_bytes = std::int64_t{1} << 30;  ///< of verbs in flight
  WaitingMemory::Bounds waiting{};                         ///< of verbs and samples
  double sample_share = 1.0 / 3.0;                         ///< of the time, while a job trains
  StreamHost::Options watches{"watches of jobs", 64};
  StreamHost::Options downloads{"downloads", 8, 2};
};

/// Tells the uptime of a plan.
class FakeClock final : public UptimeClock {
 public:
  explicit FakeClock(const FakePlan& plan) : plan_(plan) {}
  std::int64_t uptime() const override { return plan_.uptime.load(); }

 private:
  const FakePlan& plan_;
};

/// Says that a job trains also where a plan says so.
class FakeTraining final : public Training {
 public:
  FakeTraining(const FakePlan& plan, const Training& jobs) : plan_(plan), jobs_(jobs) {}
  bool busy() const override { return plan_.trains || jobs_.busy(); }

 private:
  const FakePlan& plan_;
  const Training& jobs_;
};

class FakeDaemon final : private Executor::Observer {
 public:
  FakeDaemon(const std::filesystem::path& folder, FakePlan& plan, int world_size,
             const FakeDaemonOptions& options = {})
      : state_(folder),
        store_(state_.journal(), {.jobs_dir = state_.jobs()}, {&run_store_, &drain_store_}),
        executor_(world_size, *this),
        admission_(plan, folder, options.on_resolve),
        driver_(store_, executor_, turn_, state_, folder, admission_, admission_, admission_),
        job_service_(store_, admission_, state_, options.watches, &queue_),
        generate_service_(SampleSources(store_, scheduler_, sources_, state_, admission_,
                                        admission_, admission_)),
        loader_(plan),
        sources_(loader_),
        training_(plan, driver_),
        scheduler_(executor_, options.sample_share, training_),
        uploads_({folder / "blobs", with_upload_defaults({})}),
        clock_(plan),
        queue_(turn_, store_, runs_, drain_store_),
        runs_({.executor = executor_,
               .turn = turn_,
               .store = run_store_,
               .scheduler = scheduler_,
               .resolver = admission_,
               .folders = admission_,
               .tokenization = admission_,
               .budget = admission_,
               .state = state_,
               .data_dir = folder,
               .uploads = uploads_.transients(),
               .waits = queue_,
               .clock = clock_,
               .most_upload_bytes = options.most_upload_bytes},
              options.waiting),
        drain_(drain_store_, turn_, store_, runs_),
        run_service_(runs_),
        upload_service_(uploads_, run_service_, {}),
        operation_service_(runs_),
        checkpoint_service_(store_, runs_, state_, options.downloads) {
    for (int rank = 0; rank < world_size; ++rank) {
      queues_.push_back(std::make_unique<CommandQueue>());
      executor_.attach(rank, queues_.back().get());
    }
    for (int rank = 0; rank < world_size; ++rank)
      ranks_.emplace_back([this, &plan, rank] { run_rank(plan, rank); });
    server_ = std::make_unique<GrpcServer>(
        GrpcServerOptions{resolve_listen_address("127.0.0.1:0", "listen"),
                          {&job_service_, &generate_service_, &run_service_, &operation_service_,
                           &checkpoint_service_, &upload_service_},
                          64,
                          true});
    server_->set_serving(true);
    driver_.start();
    runs_.start();
  }

  ~FakeDaemon() { stop(); }

  /// Stops the daemon as SIGTERM does.
  void stop() {
    driver_.request_stop();
    runs_.request_stop();
    scheduler_.request_stop();
    sources_.request_stop();
    driver_.stop();
    runs_.stop();
    executor_.stop();
    for (auto& rank : ranks_)
      if (rank.joinable()) rank.join();
    server_->shutdown();
    generate_service_.stop();
    operation_service_.stop();
    checkpoint_service_.stop();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }
  OpenJobStore& store() { return store_; }
  Executor& executor() { return executor_; }
  RunManager& runs() { return runs_; }
  Drain& drain() { return drain_; }
  RanksQueue& queue() { return queue_; }
  TransientUploads& uploads() { return uploads_.transients(); }
  const StateDir& state() const { return state_; }

  v1::Job wait_for(const std::string& id, v1::JobState state) {
    test::eventually([&] { return store_.get(id).state() == state; });
    return store_.get(id);
  }

  void wait_for_step(const std::string& id, std::int64_t step) {
    test::eventually([&] {
      const v1::Job job = store_.get(id);
      return job.state() != v1::JOB_STATE_QUEUED && job.step() >= step;
    });
  }

 private:
  void run_rank(FakePlan& plan, int rank) {
    FakeFactory factory(plan, rank);
    RankWorker worker(rank, factory, rank == 0 ? &sources_ : nullptr,
                      rank == 0 ? &executor_ : nullptr);
    run_commands(*queues_[static_cast<std::size_t>(rank)], worker, executor_);
  }
  void ranks_failed(const Error&) override {
    for (auto& queue : queues_) queue->close();
  }

  StateDir state_;
  RunStore run_store_;
  DrainStore drain_store_;
  OpenJobStore store_;
  std::vector<std::unique_ptr<CommandQueue>> queues_;
  Executor executor_;
  FakeAdmission admission_;
  RanksTurn turn_;
  JobDriver driver_;
  JobServiceImpl job_service_;
  GenerateServiceImpl generate_service_;  ///< what follows calls its streams
  FakeSourceLoader loader_;
  SourceCache sources_;
  FakeTraining training_;
  SampleScheduler scheduler_;
  UploadStore uploads_;  ///< for transient ones
  FakeClock clock_;
  RanksQueue queue_;
  RunManager runs_;
  Drain drain_;
  RunServiceImpl run_service_;
  UploadServiceImpl upload_service_;
  OperationServiceImpl operation_service_;
  CheckpointServiceImpl checkpoint_service_;
  std::unique_ptr<GrpcServer> server_;
  std::vector<std::thread> ranks_;
};

}  // namespace meshloom::control
