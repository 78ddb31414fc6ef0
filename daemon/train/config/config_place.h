// SPDX-License-Identifier: Apache-2.0
// ConfigPlace: what a config is resolved against beside itself.
#pragma once

#include <filesystem>

#include "daemon/train/config/device_choice.h"
#include "daemon/train/data/text_data.h"

namespace meshloom::train {

struct ConfigPlace {
  int world_size = 1;
  std::filesystem::path data_dir;
  std::filesystem::path model_folder = {};  ///< as RunFolders::model
  /// Absolute folder of the model that run.data.tokenizer names as "models/NAME".
  std::filesystem::path named_tokenizer = {};
  /// Decides with the sizes what run.plan.context_parallel.rotate: auto becomes; 0: all ranks are
  /// on one host.
  int ranks_per_host = 0;
  /// run.device may name these; a device that is not there is NeedsOtherDevices.
  WorldDevices devices = {};

  int ranks_of_host() const { return ranks_per_host == 0 ? world_size : ranks_per_host; }
  TokenizerSource tokenizers() const { return {data_dir, model_folder, named_tokenizer}; }
};

}  // namespace meshloom::train
