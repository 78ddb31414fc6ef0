// SPDX-License-Identifier: Apache-2.0
// GenerateService: text and tokens from a job, a checkpoint or a Hugging Face folder.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "daemon/control/executor.h"
#include "daemon/control/job_store.h"
#include "daemon/control/slots.h"
#include "daemon/control/state_dir.h"
#include "daemon/control/token_channel.h"
#include "daemon/train/sampling_params.h"
#include "v1/generate_service.grpc.pb.h"

namespace meshloom::control {

/// Samples on rank 0's training thread, between steps of a running job. A running job is sampled as
/// it is at that moment; other sources are loaded for the call.
class GenerateServiceImpl final : public v1::GenerateService::Service {
 public:
  /// Turns a name below the data dir into a path, or throws.
  using ResolvePath = std::function<std::filesystem::path(const std::string& name)>;
  /// What the model of a resolved config can continue.
  using FindLimits = std::function<train::PromptLimits(const v1::RunConfig& resolved)>;

  /// Counts the memory of a model in a folder as long as the result lives, or throws.
  using HoldMemory = std::function<std::shared_ptr<const void>(const std::filesystem::path&)>;

  GenerateServiceImpl(JobStore& store, Executor& executor, const StateDir& state,
                      ResolvePath resolve, FindLimits find_limits, HoldMemory hold_memory = {});

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;

 private:
  /// What to sample from: the run of a running job, or a folder.
  struct Source {
    std::string live_run;
    std::filesystem::path folder;
    std::int64_t vocab_size = 0;
  };
  Source find_source(const v1::GenerateRequest& request) const;

  /// A sample command on its way, and where its tokens arrive.
  struct Sampling {
    std::int64_t vocab_size = 0;
    std::shared_ptr<TokenChannel> tokens = std::make_shared<TokenChannel>();
    Executor::Ticket ticket = nullptr;
    std::shared_ptr<const void> memory = nullptr;  ///< of a source that is a folder
  };
  /// A source that is a folder is loaded before the command and let go after it.
  Sampling start(const v1::GenerateRequest& request, const v1::SamplingParams& params);
  void generate(grpc::ServerContext& context, const v1::GenerateRequest& request,
                grpc::ServerWriter<v1::GenerateResponse>& writer);

  JobStore& store_;
  Executor& executor_;
  const StateDir& state_;
  ResolvePath resolve_;
  FindLimits find_limits_;
  HoldMemory hold_memory_;
  Slots slots_;
  std::atomic<std::int64_t> next_{1};
};

}  // namespace meshloom::control
