// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/launch_records.h"

#include "tests/support/cuda_emulator/source_place.h"

namespace meshloom::emulator {

void LaunchRecords::start() {
  if (!traffic_) traffic_.emplace();
}

std::vector<KernelRecord> LaunchRecords::records() {
  std::vector<const void*> unnamed;
  for (const auto& [kernel, record] : kernels_)
    if (record.kernel.empty()) unnamed.push_back(kernel);
  const std::vector<std::string> names = function_names(unnamed);
  for (std::size_t i = 0; i < unnamed.size(); ++i) kernels_[unnamed[i]].kernel = names[i];
  std::vector<KernelRecord> records;
  for (const auto& [kernel, record] : kernels_) records.push_back(record);
  return records;
}

Traffic* LaunchRecords::begin_launch() {
  if (!traffic_) return nullptr;
  traffic_->begin();
  return &*traffic_;
}

void LaunchRecords::end_launch(const Launch& launch) {
  if (!traffic_) return;
  traffic_->end();
  KernelRecord& record = kernels_[launch.kernel];
  ++record.launches;
  const std::uint64_t least = traffic_->least();
  if (record.launches > 1 && least <= record.least) return;
  record.threads = launch.block.x * launch.block.y * launch.block.z;
  record.dynamic_shared = launch.shared;
  record.moved = traffic_->moved();
  record.least = least;
}

LaunchRecords& launch_records() {
  static auto& records = *new LaunchRecords;
  return records;
}

}  // namespace meshloom::emulator
