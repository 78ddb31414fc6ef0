// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/export_stream.h"

#include <chrono>

#include "daemon/base/field_error.h"
#include "daemon/control/host/background_thread.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/run/checkpoint_export.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// "checkpoints/JOB/step-N", or the newest of "checkpoints/JOB".
CheckpointName find_checkpoint(const std::string& name, const StateDir& state) {
  constexpr std::string_view kPrefix = "checkpoints/";
  if (name.rfind(kPrefix, 0) != 0 || name.find('/', kPrefix.size()) != std::string::npos)
    return parse_checkpoint_name(name);
  const std::string id = parse_job_name(name.substr(kPrefix.size()));
  const auto steps = checkpoint_steps(state, id);
  if (steps.empty())
    throw NotFound(fmt::format("job \"{}\" has no checkpoint", id), train::kCheckpointNotFound,
                   {{"job", id}});
  return {id, train::checkpoint_folder_name(steps.back())};
}

}  // namespace

v1::ExportedFolder ExportStream::write_folder() {
  const std::string dtype = request_.dtype().empty() ? "float32" : request_.dtype();
  const CheckpointName name = find_checkpoint(request_.name(), world_.state);
  const v1::Job job = world_.store.get(name.job);
  const auto pin = world_.store.pin_checkpoint(name, "an export");
  const fs::path checkpoint = checkpoint_folder(world_.state, job, name.folder);
  const auto step = train::step_of_folder_name(name.folder);
  if (!step)
    throw FailedPrecondition(
        fmt::format("{} is an export already; download it as it is", request_.name()),
        "ALREADY_EXPORTED", {{"checkpoint", request_.name()}});
  v1::ExportedFolder exported;
  train::CheckpointExport options;
  options.dtype = base::with_field("dtype", [&] { return train::export_dtype(dtype); });
  Clock::time_point message;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (world_.stopping) throw Unavailable("the daemon is stopping", "STOPPING");
    if (Clock::now() - message < std::chrono::milliseconds(500)) return;
    message = Clock::now();
    v1::ExportCheckpointResponse response;
    response.set_done_bytes(done);
    response.set_total_bytes(total);
    write(std::move(response));
  };
  remove_export_leftovers(world_.state, name.job);
  const fs::path folder = world_.state.job(name.job) / export_folder_name(*step, dtype);
  read_checkpoint(request_.name(), checkpoint,
                  [&] { train::export_checkpoint(checkpoint, folder, options); });
  spdlog::info("job {}: {} is exported as {}", name.job, name.folder, folder.string());
  *exported.mutable_checkpoint() =
      describe_checkpoint(world_.state, job, folder.filename().string());
  exported.set_folder(folder.string());
  exported.set_dtype(dtype);
  for (const OpenFile& file : open_files(folder)) {
    v1::ExportedFile& told_file = *exported.add_files();
    told_file.set_name(file.name());
    told_file.set_size_bytes(file.size());
  }
  return exported;
}

bool ExportStream::produce() {
  give_way_to_training();
  v1::ExportCheckpointResponse last;
  *last.mutable_exported() = write_folder();
  write(std::move(last));
  finish();
  return false;
}

}  // namespace meshloom::control
