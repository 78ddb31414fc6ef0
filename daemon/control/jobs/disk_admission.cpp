// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/disk_admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "daemon/control/jobs/bytes_text.h"
#include "daemon/train/config/resolve_services.h"
#include "daemon/train/config/validation_progress.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kFloat32Bytes = 4;

std::int64_t moments_of(const v1::OptimizerConfig& optimizer) {
  if (optimizer.type() == v1::OPTIMIZER_TYPE_SGD) return optimizer.momentum() > 0.0 ? 1 : 0;
  return 2;
}

/// Saved by interval and after the last step, over the whole job.
std::int64_t saves_of(const v1::CheckpointConfig& checkpoint, std::int64_t steps) {
  const std::int64_t last = train::saves_last(checkpoint) ? 1 : 0;
  if (checkpoint.interval() <= 0) return last;
  const std::int64_t by_interval = steps / checkpoint.interval();
  return by_interval + (steps % checkpoint.interval() != 0 ? last : 0);
}

/// A new one is written before the oldest goes.
std::int64_t kept_at_once(const v1::RunConfig& run, std::int64_t steps) {
  const v1::CheckpointConfig& checkpoint = run.checkpoint();
  const std::int64_t saves = saves_of(checkpoint, steps);
  const std::int64_t latest = checkpoint.keep_latest_k();
  const std::int64_t newest = latest > 0 ? std::min(saves, latest + 1) : saves;
  const std::int64_t interval = run.validation().interval();
  const std::int64_t validations = interval > 0 ? divide_up(steps, interval) : 0;
  return newest + std::min<std::int64_t>(checkpoint.keep_best(), validations);
}

std::int64_t export_bytes(const v1::ExportConfig& config, std::int64_t parameters) {
  if (config.hf_folder().empty()) return 0;
  const bool half = config.dtype() == "bfloat16" || config.dtype() == "float16";
  return parameters * (half ? 2 : kFloat32Bytes);
}

}  // namespace

v1::DiskEstimate disk_need(const v1::RunConfig& resolved, std::int64_t step_limit,
                           std::int64_t parameters) {
  const std::int64_t all = resolved.training().steps();
  const std::int64_t steps = step_limit > 0 ? std::min(all, step_limit) : all;
  v1::DiskEstimate disk;
  disk.set_checkpoint_bytes(parameters * kFloat32Bytes * (1 + moments_of(resolved.optimizer())));
  disk.set_checkpoints(kept_at_once(resolved, steps));
  disk.set_export_bytes(export_bytes(resolved.export_(), parameters));
  disk.set_needed_bytes(disk.checkpoints() * disk.checkpoint_bytes() + disk.export_bytes());
  return disk;
}

void check_room(const v1::DiskEstimate& disk, bool overcommit, std::vector<std::string>* warnings) {
  if (disk.needed_bytes() <= disk.free_bytes()) return;
  const std::string free = bytes_text(disk.free_bytes());
  if (disk.checkpoints() > 0 && disk.checkpoint_bytes() > disk.free_bytes() && !overcommit)
    throw ResourceExhausted(
        fmt::format("run.checkpoint: a checkpoint takes {}, and the disk of the state dir has {} "
                    "free: make room, or say overcommit: true, which tries all the same",
                    bytes_text(disk.checkpoint_bytes()), free),
        kNoSpace,
        {{"field", "run.checkpoint"},
         {"checkpoint_bytes", std::to_string(disk.checkpoint_bytes())},
         {"free_bytes", std::to_string(disk.free_bytes())}});
  if (disk.checkpoints() == 0) {
    warnings->push_back(
        fmt::format("run.export: the export takes {}, and the disk of the state dir has {} free",
                    bytes_text(disk.export_bytes()), free));
    return;
  }
  warnings->push_back(fmt::format(
      "run.checkpoint: the job will keep {} checkpoints of {}{} at once, {} in all, and the disk "
      "of the state dir has {} free; checkpoint.keep_latest_k and keep_best say how many",
      disk.checkpoints(), bytes_text(disk.checkpoint_bytes()),
      disk.export_bytes() > 0 ? fmt::format(" and an export of {}", bytes_text(disk.export_bytes()))
                              : "",
      bytes_text(disk.needed_bytes()), free));
}

std::optional<v1::DiskEstimate> check_disk(const v1::JobSpec& spec, const v1::RunConfig& resolved,
                                           const nn::ModelConfig& model,
                                           const std::filesystem::path& folder,
                                           std::vector<std::string>* warnings) {
  std::error_code unknown;
  const std::filesystem::space_info room = std::filesystem::space(folder, unknown);
  if (unknown) return std::nullopt;
  v1::DiskEstimate disk = disk_need(resolved, spec.step_limit(), nn::parameter_count(model));
  disk.set_free_bytes(
      static_cast<std::int64_t>(std::min<std::uintmax_t>(room.available, std::uintmax_t{1} << 62)));
  check_room(disk, spec.overcommit(), warnings);
  return disk;
}

}  // namespace meshloom::control
