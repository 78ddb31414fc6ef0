// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/checkpoint_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/services/download_stream.h"
#include "daemon/control/services/export_stream.h"
#include "daemon/control/stores/checkpoint_damage.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/train/checkpoint/manifest.h"
#include "kernels/base/log.h"

namespace meshloom::control {

CheckpointServiceImpl::CheckpointServiceImpl(JobStore& store, const RunManager& runs,
                                             const StateDir& state,
                                             const StreamHost::Options& downloads)
    : store_(store), runs_(runs), state_(state), downloads_(downloads) {}

void CheckpointServiceImpl::stop() {
  stop_exports();
  exports_.stop();
  downloads_.stop();
}

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

grpc::Status CheckpointServiceImpl::ListCheckpoints(grpc::ServerContext* context,
                                                    const v1::ListCheckpointsRequest* request,
                                                    v1::ListCheckpointsResponse* response) {
  return guarded("ListCheckpoints", [&] {
    const std::string scope = "checkpoints of " + request->job();
    const auto first = static_cast<std::size_t>(parse_page_token(scope, request->page_token()));
    const auto size = static_cast<std::size_t>(page_size_or_default(request->page_size()));
    auto all = all_checkpoints(request->job());
    const auto go_on = [&] {
      if (stopping_) throw Unavailable("the daemon is stopping", "STOPPING");
      if (context->IsCancelled()) throw Cancelled("the client has gone");
    };
    for (std::size_t i = first; i < all.size() && i < first + size; ++i) {
      const CheckpointName name = parse_checkpoint_name(all[i].name());
      all[i].set_damage(find_damage(checkpoint_path(state_.job(name.job), name.folder),
                                    request->verify(), go_on));
      *response->add_checkpoints() = std::move(all[i]);
    }
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

grpc::ServerWriteReactor<v1::ExportCheckpointResponse>* CheckpointServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context, const v1::ExportCheckpointRequest* request) {
  const ExportStream::World world = {store_, state_, stopping_};
  return std::make_shared<ExportStream>(exports_, *context, world, *request)->open();
}

void CheckpointServiceImpl::delete_checkpoint(const v1::DeleteCheckpointRequest& request) {
  const RequestKey key = make_request_key("DeleteCheckpoint", request);
  const CheckpointName name = parse_checkpoint_name(request.name());
  // Which one is the newest is for one deletion at a time to see.
  const std::lock_guard one_at_a_time(deleting_);
  JobStore::GoneCheckpoint gone;
  gone.folder = name.folder;
  gone.force = request.force();
  if (store_.find_request(key)) return store_.delete_checkpoint(name.job, gone, key);
  checkpoint_folder(state_, store_.get(name.job), name.folder);  // it exists
  const auto steps = checkpoint_steps(state_, name.job);
  const auto step = train::step_of_folder_name(name.folder);
  if (!request.force())
    for (const v1::BestCheckpoint& best : best_checkpoints(state_, name.job))
      if (best.step() == step)
        throw FailedPrecondition(
            fmt::format("{} has one of the lowest validation losses, {:.4f}, and "
                        "run.checkpoint.keep_best keeps it; force deletes it all the same",
                        request.name(), best.loss()),
            "CHECKPOINT_IS_BEST", {{"checkpoint", request.name()}});
  gone.newest = !steps.empty() && step == steps.back();
  if (gone.newest && steps.size() > 1) gone.newest_left = steps[steps.size() - 2];
  store_.delete_checkpoint(name.job, gone, key);
  spdlog::info("job {}: a client deletes {}", name.job, name.folder);
}

grpc::Status CheckpointServiceImpl::DeleteCheckpoint(grpc::ServerContext*,
                                                     const v1::DeleteCheckpointRequest* request,
                                                     v1::DeleteCheckpointResponse*) {
  return guarded("DeleteCheckpoint", [&] { delete_checkpoint(*request); });
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
