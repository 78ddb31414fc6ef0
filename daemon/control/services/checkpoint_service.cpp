// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/checkpoint_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/services/download_stream.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {

CheckpointServiceImpl::CheckpointServiceImpl(const JobStore& store, const RunManager& runs,
                                             const StateDir& state,
                                             const StreamHost::Options& downloads)
    : store_(store), runs_(runs), state_(state), downloads_(downloads) {}

std::vector<v1::Checkpoint> CheckpointServiceImpl::all_checkpoints(const std::string& job) const {
  if (!job.empty()) return list_checkpoints(state_, store_.get(parse_job_name(job)));
  std::vector<v1::Checkpoint> all;
  std::int64_t position = 0;
  constexpr int kJobsAtOnce = 1000;
  do {
    const auto [jobs, next] = store_.list(position, kJobsAtOnce);
    for (const auto& item : jobs)
      for (auto& checkpoint : list_checkpoints(state_, item)) all.push_back(std::move(checkpoint));
    position = next;
  } while (position > 0);
  return all;
}

grpc::Status CheckpointServiceImpl::ListCheckpoints(grpc::ServerContext*,
                                                    const v1::ListCheckpointsRequest* request,
                                                    v1::ListCheckpointsResponse* response) {
  return guarded("ListCheckpoints", [&] {
    const std::string scope = "checkpoints of " + request->job();
    const auto first = static_cast<std::size_t>(parse_page_token(scope, request->page_token()));
    const auto size = static_cast<std::size_t>(page_size_or_default(request->page_size()));
    auto all = all_checkpoints(request->job());
    for (std::size_t i = first; i < all.size() && i < first + size; ++i)
      *response->add_checkpoints() = std::move(all[i]);
    if (first + size < all.size())
      response->set_next_page_token(
          make_page_token(scope, static_cast<std::int64_t>(first + size)));
  });
}

grpc::ServerWriteReactor<v1::ReadCheckpointResponse>* CheckpointServiceImpl::ReadCheckpoint(
    grpc::CallbackServerContext* context, const v1::ReadCheckpointRequest* request) {
  return std::make_shared<DownloadStream>(
             downloads_, *context, [this](const std::string& name) { return find(name); }, *request)
      ->open();
}

DownloadStream::Source CheckpointServiceImpl::find(const std::string& name) const {
  if (name.rfind("runs/", 0) != 0) {
    const CheckpointName parsed = parse_checkpoint_name(name);
    return {checkpoint_folder(state_, store_.get(parsed.job), parsed.folder), nullptr};
  }
  const WeightsName parsed = parse_weights_name(name);
  const auto run = runs_.find(parsed.run);
  const v1::SavedWeights saved = run->find_weights(name);
  if (saved.storage() != v1::WEIGHTS_STORAGE_DISK)
    throw FailedPrecondition(
        fmt::format("{} are in memory: save weights on disk to download them", name),
        "WEIGHTS_IN_MEMORY", {{"weights", name}});
  return {state_.run(parsed.run) / "weights" / parsed.weights, run->hold_lease()};
}

}  // namespace meshloom::control
