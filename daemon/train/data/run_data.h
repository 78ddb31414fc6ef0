// SPDX-License-Identifier: Apache-2.0
// The data of a config, opened: what is trained on and what is validated on.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/dataset.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// RunData holds opened training and validation data.
struct RunData {
  /// Both null, and no sets, if there is text that is not tokenized yet.
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> validation;                    ///< may have no samples
  std::vector<std::shared_ptr<const Dataset>> validation_sets;  ///< config.validation().sets()
  v1::DataIdentity identity;                                    ///< of data.path
};

/// Opens and splits what config.data, resolved, names. seq_len is filled in. Throws with the field
/// in the metadata. `text` says where the tokens of text are that is tokenized; without them there
/// is no more than the identity. The files are looked for in `data_dir`, unless they are given.
RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const std::filesystem::path& data_dir, const std::string& field = "run.data",
                      const TokenizedText& text = {}, base::Disk& disk = base::own_disk());
RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const RunFiles& files, const std::string& field, const TokenizedText& text,
                      base::Disk& disk = base::own_disk());
/// Throws with the field if the data hold fewer samples than a step of a config that has any, or
/// nothing to predict where it validates. Data whose tokens are not made yet may.
void check_enough(const v1::RunConfig& config, const RunData& data);

}  // namespace meshloom::train
