// SPDX-License-Identifier: Apache-2.0
// What tests of jobs on tokenized text share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run.h"
#include "kernels/base/error.h"
#include "tests/unit/train/data_files.h"
#include "tests/unit/train/tiny_model.h"

namespace meshloom::train {

/// A job on the folder "text" with the model of the folder "model".
class TextJobTest : public ::testing::Test {
 protected:
  void write_model(const std::string& name, int vocabulary) const {
    std::string json = testing::tiny_gpt2_config();
    json.replace(json.find("256"), 3, std::to_string(vocabulary));
    folder_.write_text(name + "/config.json", json);
  }
  v1::RunConfig config() const {
    v1::RunConfig config;
    config.mutable_model()->set_config("model/config.json");
    config.mutable_data()->set_path("text");
    config.mutable_training()->set_steps(10);
    config.mutable_training()->set_global_batch_size(2);
    config.mutable_validation()->set_interval(0);
    return config;
  }
  v1::RunConfig resolve(const v1::RunConfig& given) const {
    return resolve_run_config(given, {.world_size = 1, .data_dir = folder_.path()});
  }
  /// Reason and text of a refusal.
  std::string refused_when(const std::function<void(v1::RunConfig&)>& change) const {
    v1::RunConfig given = config();
    change(given);
    try {
      resolve(given);
    } catch (const Error& error) {
      return error.reason() + " " + error.what();
    }
    return "accepted";
  }
  TokenizedText tokenize(const v1::RunConfig& resolved) const {
    TokenCache cache(folder_.path() / "cache", 1 << 20);
    const nn::ModelConfig model = load_model_config(resolved.model(), folder_.path());
    return tokenize_text(resolved, model.vocab_size, tokenizer_folder(resolved, {folder_.path()}),
                         folder_.path(), cache, 2,
                         [](const std::string&, std::uint64_t, std::uint64_t) {});
  }

  /// A checkpoint of a job with this resolved config, of which settled() goes on.
  void write_checkpoint(const v1::RunConfig& before) const {
    Manifest manifest;
    manifest.step = 2;
    manifest.model_config = nn::to_hf_config(load_model_config(before.model(), folder_.path()));
    manifest.run_config = to_json_text(before);
    manifest.data_identity = to_json_text(before.data().identity());
    folder_.write_text("step-2/manifest.json", manifest_to_json(manifest));
  }
  v1::RunConfig settled(const v1::RunConfig& given) const {
    v1::RunConfig resolved = resolve(given);
    resolve_resume_from(given, &resolved, folder_.path() / "step-2", {folder_.path()});
    return resolved;
  }

  testing::DataFolder folder_;
};

}  // namespace meshloom::train
