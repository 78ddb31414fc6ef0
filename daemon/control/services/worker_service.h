// SPDX-License-Identifier: Apache-2.0
// WorkerService: the ranks of the daemon, and its stop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/diagnosis/flight_field.h"
#include "daemon/control/host/stop_requests.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/rank_service.h"
#include "daemon/control/runs/drain.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/stores/ledger.h"
#include "daemon/control/stores/lost_folder.h"
#include "v1/worker_service.grpc.pb.h"

namespace meshloom::control {

/// What tells of the daemon and stops it waits for no thread.
using WorkerServiceBase = v1::WorkerService::WithCallbackMethod_ListWorkers<
    v1::WorkerService::WithCallbackMethod_Shutdown<v1::WorkerService::Service>>;

class WorkerServiceImpl final : public WorkerServiceBase, public ClientService {
 public:
  /// The references outlive the service.
  struct Options {
    v1::RankHello self;  ///< rank 0
    std::string version;
    std::string state_dir;
    StopRequests& stops;
    std::shared_ptr<const comm::FlightField> flight;
    v1::GetCapabilitiesResponse capabilities;  ///< but for the ranks' CPUs
    const Ledger& ledger;
    std::vector<LostFolder::Held> lost;  ///< at the start
    const RanksQueue& queue;
    std::function<std::vector<std::string>()> access_notes;  ///< ListWorkersResponse; may be empty
  };
  WorkerServiceImpl(const Executor& executor, const RankServiceImpl& ranks, const RankWatch& watch,
                    control::Drain& drain, Options options);

  // Any door may call these handlers, which throw what is wrong with a request.
  v1::ListWorkersResponse list_workers(const Caller& caller);
  v1::DumpFlightResponse dump_flight(const v1::DumpFlightRequest& request);
  v1::DrainResponse drain(const v1::DrainRequest& request);
  v1::UndrainResponse undrain();
  v1::GetCapabilitiesResponse get_capabilities();
  void shutdown(const v1::ShutdownRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext* context,
                                     const v1::ShutdownRequest* request,
                                     v1::ShutdownResponse* response) override;
  grpc::Status DumpFlight(grpc::ServerContext*, const v1::DumpFlightRequest* request,
                          v1::DumpFlightResponse* response) override;
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override;
  grpc::Status Undrain(grpc::ServerContext*, const v1::UndrainRequest*,
                       v1::UndrainResponse* response) override;
  grpc::Status GetCapabilities(grpc::ServerContext*, const v1::GetCapabilitiesRequest*,
                               v1::GetCapabilitiesResponse* response) override;

 private:
  v1::Worker describe(const v1::RankHello& hello) const;

  const Executor& executor_;
  const RankServiceImpl& ranks_;
  const RankWatch& watch_;
  control::Drain& drain_;
  Options options_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace meshloom::control
