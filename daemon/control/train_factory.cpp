// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/train_factory.h"

#include "daemon/train/in_step.h"

namespace meshloom::control {

TrainFactory::TrainFactory(comm::ProcessGroup& world, int threads, RemoteDisk* disk)
    : world_(world), threads_(threads), disk_(disk) {}

TrainFactory::~TrainFactory() = default;

std::unique_ptr<train::Run> TrainFactory::create(const v1::RunConfig& resolved,
                                                 const train::RunOptions& options) {
  if (!context_) {
    ExecutionContext::Options context;
    context.threads = Threads{threads_};
    context_ = std::make_unique<ExecutionContext>(std::move(context));
  }
  return train::Run::create({context_.get(), &world_, disk_, disk_}, resolved, options);
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
