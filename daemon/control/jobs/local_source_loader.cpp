// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_source_loader.h"

#include <memory>

#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/run/sampler.h"

namespace meshloom::control {

SourceLoader::Loaded LocalSourceLoader::load(const std::filesystem::path& folder) {
  Loaded loaded{memory_.hold_source(train::Sampler::weight_bytes(folder)), nullptr};
  // A stop does not wait for a large model, nor for a file system that hangs.
  loaded.sampler = loads_.run<std::unique_ptr<train::Sampler>>(
      [folder, jobs = state_.jobs(), threads = threads_] {
        std::unique_ptr<train::Sampler> sampler;
        const auto load = [&] {
          ExecutionContext::Options context;
          context.threads = Threads{threads};
          sampler = train::Sampler::load(context, folder);
        };
        if (const auto name = checkpoint_at(jobs, folder))
          read_checkpoint(checkpoint_resource(name->job, name->folder), folder, load);
        else
          load();
        return sampler;
      });
  return loaded;
}

}  // namespace meshloom::control
