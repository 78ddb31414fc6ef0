// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/checkpoint_service.h"

#include "daemon/control/checkpoint_files.h"
#include "daemon/control/listen_address.h"
#include "daemon/control/names.h"
#include "daemon/control/status.h"
#include "daemon/train/checkpoint/digest.h"

namespace meshloom::control {
namespace {

constexpr int kMostReaders = 8;
constexpr std::size_t kPiece = 1 << 20;

/// False where the client has left.
bool send_file(const OpenFile& file, grpc::ServerWriter<v1::ReadCheckpointResponse>& writer) {
  train::Digest digest;
  std::int64_t offset = 0;
  do {
    v1::ReadCheckpointResponse response;
    response.set_file(file.name());
    response.set_file_size(file.size());
    response.set_offset(offset);
    std::string data = file.read(offset, kPiece);
    if (data.empty() && offset < file.size())
      throw DataLoss(fmt::format("{} became shorter while it was read", file.name()),
                     "FILE_CHANGED");
    digest.update(std::as_bytes(std::span(data)));
    offset += static_cast<std::int64_t>(data.size());
    response.set_data(std::move(data));
    if (offset >= file.size()) response.set_xxh3_128(digest.hex());
    if (!writer.Write(response)) return false;
  } while (offset < file.size());
  return true;
}

}  // namespace

CheckpointServiceImpl::CheckpointServiceImpl(const JobStore& store, const StateDir& state)
    : store_(store), state_(state), readers_("downloads", kMostReaders) {}

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

grpc::Status CheckpointServiceImpl::ReadCheckpoint(
    grpc::ServerContext* context, const v1::ReadCheckpointRequest* request,
    grpc::ServerWriter<v1::ReadCheckpointResponse>* writer) {
  return guarded("ReadCheckpoint", [&] {
    const Slots::Slot slot = readers_.take(client_of_peer(context->peer()));
    const CheckpointName name = parse_checkpoint_name(request->name());
    const auto folder = checkpoint_folder(state_, store_.get(name.job), name.folder);
    for (const auto& file : open_files(folder))
      if (!send_file(file, *writer)) return;
  });
}

}  // namespace meshloom::control
