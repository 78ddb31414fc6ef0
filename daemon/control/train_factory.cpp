// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/train_factory.h"

namespace meshloom::control {

TrainFactory::TrainFactory(comm::ProcessGroup& world, int threads)
    : world_(world), threads_(threads) {}

TrainFactory::~TrainFactory() = default;

ExecutionContext& TrainFactory::context() {
  if (!context_) {
    ExecutionContext::Options options;
    options.threads = Threads{threads_};
    context_ = std::make_unique<ExecutionContext>(std::move(options));
  }
  return *context_;
}

std::unique_ptr<train::Run> TrainFactory::create(const v1::RunConfig& resolved,
                                                 const train::RunOptions& options) {
  return train::Run::create({&context(), &world_}, resolved, options);
}

std::unique_ptr<train::Sampler> TrainFactory::load_sampler(const std::filesystem::path& folder) {
  return train::Sampler::load(context(), folder);
}

}  // namespace meshloom::control
