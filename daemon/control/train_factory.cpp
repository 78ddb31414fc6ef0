// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/train_factory.h"

#include <utility>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/train/run/in_step.h"
#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom::control {

TrainFactory::TrainFactory(comm::ProcessGroup& world, int threads, RemoteDisk* disk,
                           RankDevices devices)
    : world_(world), threads_(threads), disk_(disk), devices_(std::move(devices)) {}

TrainFactory::~TrainFactory() = default;

ExecutionContext& TrainFactory::context_on(Device device) {
  for (const auto& context : contexts_)
    if (context->device() == device) return *context;
  ExecutionContext::Options options;
  options.device = device;
  options.threads = Threads{threads_};
  contexts_.push_back(std::make_unique<ExecutionContext>(std::move(options)));
  return *contexts_.back();
}

comm::ProcessGroup& TrainFactory::world_on(const std::string& resolved_device, Device device) {
  std::unique_ptr<comm::ProcessGroup>& world = worlds_[resolved_device];
  if (world) return *world;
  check_internal(devices_.runtime != nullptr, "train factory: no runtime for groups on {}",
                 to_string(device));
  // A device may fail on one rank alone: no rank begins the group before all have the device, and
  // all keep the group or none does.
  ExecutionContext* context = nullptr;
  comm::run_agreed(world_, [&] { context = &context_on(device); });
  comm::GroupOptions options = devices_.group;
  options.name = fmt::format("{}_{}", options.name, resolved_device);
  options.device = comm::GroupDevice{device, &context->backend(), context->options().stream};
  std::unique_ptr<comm::ProcessGroup> made;
  comm::run_agreed(world_, [&] { made = devices_.runtime->make_world_group(options); });
  world = std::move(made);
  return *world;
}

std::unique_ptr<train::Run> TrainFactory::create(const v1::RunConfig& resolved,
                                                 const train::RunOptions& options) {
  const Device device =
      train::device_of_rank(resolved.device(), devices_.host, devices_.local_rank);
  comm::ProcessGroup& world = device == kCpuDevice ? world_ : world_on(resolved.device(), device);
  return train::Run::create({&context_on(device), &world, disk_, disk_}, resolved, options);
}

void TrainFactory::run_in_step(const std::function<void()>& verb) {
  train::run_in_step(world_, verb);
}

std::uint64_t TrainFactory::recoveries() const {
  const comm::FailureDomain* failures = world_.failures();
  return failures ? failures->epoch() : 0;
}

void TrainFactory::join_recovery() { train::join_recovery(world_); }

}  // namespace meshloom::control
