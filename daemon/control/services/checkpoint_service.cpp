// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/checkpoint_service.h"

#include <charconv>
#include "daemon/control/services/grpc_door.h"

#include "daemon/base/utf8.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/download_stream.h"
#include "daemon/control/services/export_stream.h"
#include "daemon/control/stores/checkpoint_damage.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/found_damage.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/page_room.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/train/files/manifest.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLongestDamage = 1000;  // of as many as a page may have: less than its bytes

/// The checkpoint that a page ends with. It is found again by its name, since others may come and
/// go while a client reads page after page.
struct PagePlace {
  std::int64_t job_position = 0;  ///< that JobStore::list goes on from to its job
  std::string job;
  std::string folder;
};

std::string place_text(const PagePlace& place) {
  return fmt::format("{:x}/{}/{}", place.job_position, place.job, place.folder);
}

PagePlace parse_place(const std::string& text) {
  PagePlace place;
  const auto slash = text.find('/'), second = text.find('/', slash + 1);
  if (slash == std::string::npos || second == std::string::npos) return place;
  std::from_chars(text.data(), text.data() + slash, place.job_position, 16);
  place.job = text.substr(slash + 1, second - slash - 1);
  place.folder = text.substr(second + 1);
  return place;
}

/// As find_damage; without digests what was found when its files were read before comes first.
std::string damage_of(const std::filesystem::path& folder, bool digests,
                      const std::function<void()>& go_on) {
  if (!digests)
    if (const std::string known = remembered_damage(folder); !known.empty()) return known;
  std::string damage = find_damage(folder, digests, go_on);
  if (!digests) return damage;
  if (damage.empty())
    forget_damage(folder);
  else
    remember_damage(folder, damage);
  return damage;
}

}  // namespace

CheckpointServiceImpl::CheckpointServiceImpl(JobStore& store, const RunManager& runs,
                                             const StateDir& state,
                                             const StreamHost::Options& downloads)
    : store_(store), runs_(runs), state_(state), downloads_(downloads) {}

void CheckpointServiceImpl::request_stop() {
  stopping_ = true;
  verifications_.request_stop();
}

void CheckpointServiceImpl::end_calls() {
  request_stop();
  lists_.request_stop();
  deletions_.request_stop();
}

void CheckpointServiceImpl::stop() {
  end_calls();
  exports_.stop();
  downloads_.stop();
  for (CallHost* host : {&lists_, &verifications_, &deletions_}) host->stop();
}

void CheckpointServiceImpl::fill_page(const Caller& caller,
                                      const v1::ListCheckpointsRequest& request,
                                      const CallHost::GoOn& go_on,
                                      v1::ListCheckpointsResponse* response) const {
  const std::string scope = "checkpoints of " + request.job();
  PageRoom room(page_size_of(request));
  const PagePlace begin = parse_place(parse_place_token(scope, request.page_token()));
  PagePlace last;
  std::int64_t position = begin.job_position;
  do {
    const auto [jobs, next] = job_at(caller, request.job(), position);
    for (const v1::Job& job : jobs) {
      const std::string id = parse_job_name(job.name());
      go_on();
      for (const FoundCheckpoint& found : find_checkpoints(state_, job)) {
        // The job of this name may be another one by now, at another place.
        if (position == begin.job_position && id == begin.job &&
            !comes_behind(found.name(), begin.folder))
          continue;
        // Before its files are read.
        v1::Checkpoint message = describe_checkpoint(id, found);
        if (!room.take(message)) {
          response->set_next_page_token(make_place_token(scope, place_text(last)));
          return;
        }
        message.set_damage(
            base::printable_text(damage_of(found.folder, request.verify(), go_on), kLongestDamage));
        message.set_without_digests(!has_digests(found.folder));
        *response->add_checkpoints() = std::move(message);
        last = {position, id, found.name()};
      }
    }
    position = next;
  } while (position > 0);
}

std::pair<std::vector<v1::Job>, std::int64_t> CheckpointServiceImpl::job_at(
    const Caller& caller, const std::string& name, std::int64_t position) const {
  // Those that others share are shown without what they have saved.
  const Identity& who = caller.identity();
  const IsShown is_own = [&](const Ownership& ownership) { return ownership.owner == who.owner(); };
  if (name.empty()) return store_.list(position, 1, {}, who.is_admin() ? nullptr : is_own);
  return {{store_.get(parse_job_name(name))}, 0};
}

std::shared_ptr<UnaryCall> CheckpointServiceImpl::list_checkpoints(
    const Caller& caller, const v1::ListCheckpointsRequest& request,
    v1::ListCheckpointsResponse* response) {
  CallHost& host = request.verify() ? verifications_ : lists_;
  return host.call("ListCheckpoints", caller, request,
                   [caller, &request, response, this](const CallHost::GoOn& go_on) {
                     fill_page(caller, request, go_on, response);
                   });
}

std::shared_ptr<Stream<v1::ReadCheckpointResponse>> CheckpointServiceImpl::read_checkpoint(
    const Caller& caller, const v1::ReadCheckpointRequest& request) {
  const DownloadSources& sources = *this;
  return std::make_shared<DownloadStream>(downloads_, caller, sources, request);
}

std::shared_ptr<Stream<v1::ExportCheckpointResponse>> CheckpointServiceImpl::export_checkpoint(
    const Caller& caller, const v1::ExportCheckpointRequest& request) {
  const ExportStream::World world = {store_, state_, stopping_};
  return std::make_shared<ExportStream>(exports_, caller, world, request);
}

void CheckpointServiceImpl::remove(const v1::DeleteCheckpointRequest& request,
                                   const Caller& caller) {
  const RequestKey key = request_key_of("DeleteCheckpoint", request, caller);
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
                        "run.checkpoint.keep_best keeps it; --force (force in the request) deletes "
                        "it all the same",
                        request.name(), best.loss()),
            "CHECKPOINT_IS_BEST", {{"checkpoint", request.name()}});
  gone.newest = !steps.empty() && step == steps.back();
  if (gone.newest && steps.size() > 1) gone.newest_left = steps[steps.size() - 2];
  store_.delete_checkpoint(name.job, gone, key);
  spdlog::info("job {}: a client deletes {}", name.job, name.folder);
}

std::shared_ptr<UnaryCall> CheckpointServiceImpl::delete_checkpoint(
    const Caller& caller, const v1::DeleteCheckpointRequest& request) {
  return deletions_.call(
      "DeleteCheckpoint", caller, request,
      [caller, &request, this](const CallHost::GoOn&) { remove(request, caller); });
}

DownloadSources::Source CheckpointServiceImpl::find(const Caller& caller,
                                                    const std::string& name) const {
  if (name.rfind("runs/", 0) != 0) {
    const CheckpointName parsed = parse_checkpoint_name(name);
    return {checkpoint_folder(state_, store_.get(parsed.job), parsed.folder), Hold()};
  }
  const WeightsName parsed = parse_weights_name(name);
  const auto run = runs_.find(parsed.run);
  const v1::SavedWeights saved = run->weights().find(name);
  if (saved.storage() != v1::WEIGHTS_STORAGE_DISK)
    throw FailedPrecondition(
        fmt::format("{} are in memory: save weights on disk to download them", name),
        "WEIGHTS_IN_MEMORY", {{"weights", name}});
  return {state_.root() / saved.folder(), run->hold_lease_of(caller.run_token())};
}

// gRPC calls these adapters of the handlers.

grpc::ServerUnaryReactor* CheckpointServiceImpl::ListCheckpoints(
    grpc::CallbackServerContext* context, const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return list_checkpoints(caller, *request, response); });
}

grpc::ServerWriteReactor<v1::ReadCheckpointResponse>* CheckpointServiceImpl::ReadCheckpoint(
    grpc::CallbackServerContext* context, const v1::ReadCheckpointRequest* request) {
  return serve_stream<v1::ReadCheckpointResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return read_checkpoint(caller, *request); });
}

grpc::ServerWriteReactor<v1::ExportCheckpointResponse>* CheckpointServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context, const v1::ExportCheckpointRequest* request) {
  return serve_stream<v1::ExportCheckpointResponse>(
      gate(), *context, *request,
      [&](const Caller& caller) { return export_checkpoint(caller, *request); });
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::DeleteCheckpoint(
    grpc::CallbackServerContext* context, const v1::DeleteCheckpointRequest* request,
    v1::DeleteCheckpointResponse* response) {
  return serve(gate(), *context, *request, response,
               [&](const Caller& caller) { return delete_checkpoint(caller, *request); });
}

}  // namespace meshloom::control
