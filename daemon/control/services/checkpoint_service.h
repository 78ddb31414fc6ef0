// SPDX-License-Identifier: Apache-2.0
// CheckpointService: which checkpoints and exports there are, and their files; those of runs'
// weights too.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/call_host.h"
#include "daemon/control/services/client_service.h"
#include "daemon/control/services/download_stream.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/services/stream_host.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/checkpoint_service.grpc.pb.h"

namespace meshloom::control {

/// Calls hold no thread of gRPC: all of them read or delete files.
using CheckpointServiceBase = v1::CheckpointService::WithCallbackMethod_ReadCheckpoint<
    v1::CheckpointService::WithCallbackMethod_ExportCheckpoint<
        v1::CheckpointService::WithCallbackMethod_ListCheckpoints<
            v1::CheckpointService::WithCallbackMethod_DeleteCheckpoint<
                v1::CheckpointService::Service>>>>;

class CheckpointServiceImpl final : public CheckpointServiceBase,
                                    public ClientService,
                                    private DownloadSources {
 public:
  CheckpointServiceImpl(JobStore& store, const RunManager& runs, const StateDir& state,
                        const StreamHost::Options& downloads = {"downloads", 8, 2});

  // Any door may call these handlers, which throw what is wrong with a request.
  std::shared_ptr<UnaryCall> list_checkpoints(const Caller& caller,
                                              const v1::ListCheckpointsRequest& request,
                                              v1::ListCheckpointsResponse* response);
  std::shared_ptr<Stream<v1::ReadCheckpointResponse>> read_checkpoint(
      const Caller& caller, const v1::ReadCheckpointRequest& request);
  std::shared_ptr<Stream<v1::ExportCheckpointResponse>> export_checkpoint(
      const Caller& caller, const v1::ExportCheckpointRequest& request);
  std::shared_ptr<UnaryCall> delete_checkpoint(const Caller& caller,
                                               const v1::DeleteCheckpointRequest& request);

  // gRPC calls these adapters of the handlers.
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadCheckpointResponse>* ReadCheckpoint(
      grpc::CallbackServerContext* context, const v1::ReadCheckpointRequest* request) override;
  grpc::ServerWriteReactor<v1::ExportCheckpointResponse>* ExportCheckpoint(
      grpc::CallbackServerContext* context, const v1::ExportCheckpointRequest* request) override;
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override;

  /// Exports and comparisons of digests that are under way are given up. Does not wait.
  void request_stop() override;
  /// The same, and calls that wait end.
  void end_calls() override;
  /// After the server's shutdown: the runs may end then.
  void stop() override;

 private:
  /// `go_on` is called before each piece of a file that is read; what it throws goes through.
  void fill_page(const Caller& caller, const v1::ListCheckpointsRequest& request,
                 const CallHost::GoOn& go_on, v1::ListCheckpointsResponse* response) const;
  /// The job of this name, or the one behind a position, as JobStore::list tells it.
  std::pair<std::vector<v1::Job>, std::int64_t> job_at(const Caller& caller,
                                                       const std::string& name,
                                                       std::int64_t position) const;

  /// A download of a run's weights holds the lease of a caller that holds the run.
  Source find(const Caller& caller, const std::string& name) const override;
  void remove(const v1::DeleteCheckpointRequest& request, const Caller& caller);

  JobStore& store_;
  const RunManager& runs_;
  const StateDir& state_;
  std::mutex deleting_;
  std::atomic<bool> stopping_ = false;
  StreamHost downloads_;
  StreamHost exports_{{"exports", 4, 1}};
  CallHost lists_{{"lists of checkpoints"}};
  CallHost verifications_{{"comparisons of digests"}};  ///< which keep no list waiting
  CallHost deletions_{{"deletions of checkpoints"}};
};

}  // namespace meshloom::control
