// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_model_folders.h"

#include "daemon/base/field_error.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/files/paths.h"

namespace meshloom::control {

namespace fs = std::filesystem;

fs::path LocalModelFolders::find_hf_folder(const std::string& name) {
  return calls_.run<fs::path>(
      [this, name] { return train::resolve_path(name, resources_.data_dir, "hf_folder"); });
}

fs::path LocalModelFolders::model_folder(const v1::RunConfig& resolved) {
  return calls_.run<fs::path>([this, source = resolved.model()] { return find_model(source); });
}

fs::path LocalModelFolders::tokenizer_folder(const v1::RunConfig& resolved, const fs::path& model) {
  return calls_.run<fs::path>(
      [this, resolved, model] { return find_tokenizer_folder(resolved, model); });
}

Hold LocalModelFolders::hold_model(const std::string& name) const {
  if (name.empty() || !resources_.models) return {};
  return resources_.models->hold(parse_model_name(name), kBeingMade);
}

Hold LocalModelFolders::hold_models(const v1::RunConfig& config) {
  auto model =
      base::with_field("run.model.name", [&] { return hold_model(config.model().name()); });
  const std::string& tokenizer = config.data().tokenizer();
  if (!tokenizer.starts_with("models/")) return model;
  return Hold::join(std::move(model),
                    base::with_field("run.data.tokenizer", [&] { return hold_model(tokenizer); }));
}

nn::ModelConfig LocalModelFolders::model_config(const v1::ModelSource& source) {
  return calls_.run<nn::ModelConfig>([this, source] {
    nn::ModelConfig config = load_config(source);
    train::check_config_keys(source, config, resources_.data_dir, find_model(source));
    return config;
  });
}

fs::path LocalModelFolders::find_model(const v1::ModelSource& source) const {
  if (source.name().empty() || !resources_.models) return {};
  return resources_.models->folder(parse_model_name(source.name()));
}

fs::path LocalModelFolders::find_tokenizer(const v1::RunConfig& config) const {
  const std::string& name = config.data().tokenizer();
  if (!name.starts_with("models/") || !resources_.models) return {};
  return base::with_field("run.data.tokenizer",
                          [&] { return resources_.models->folder(parse_model_name(name)); });
}

fs::path LocalModelFolders::find_tokenizer_folder(const v1::RunConfig& resolved,
                                                  const fs::path& model) const {
  return train::tokenizer_folder(resolved, {resources_.data_dir, model, find_tokenizer(resolved)});
}

nn::ModelConfig LocalModelFolders::load_config(const v1::ModelSource& source) const {
  return load_config(source, find_model(source));
}

nn::ModelConfig LocalModelFolders::load_config(const v1::ModelSource& source,
                                               const fs::path& folder) const {
  return train::load_model_config(source, resources_.data_dir, folder);
}

}  // namespace meshloom::control
