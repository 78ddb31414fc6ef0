// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resume_check.h"

#include <nlohmann/json.hpp>

#include "daemon/base/field_error.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/files/message_json.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kResumeField = "run.checkpoint.resume_from";

Json value_of(const Json& object, const std::string& key) {
  return object.contains(key) ? object.at(key) : Json();
}

[[noreturn]] void refuse(const std::string& label, const std::string& what, const std::string& key,
                         const Json& before, const Json& now, const std::string& advice = "") {
  throw FailedPrecondition(
      fmt::format("checkpoint {} is of {}: {} is {} there and {} in the config{}", label, what, key,
                  before.dump(), now.dump(), advice),
      "CHECKPOINT_MISMATCH", {{"path", label}, {"key", key}});
}

/// What decides which sample is at a position; where it is validated is free, and so is whether
/// lines without text end the job, since the text is the same.
Json data_keys(const Json& config) {
  Json data = value_of(config, "data");
  if (!data.is_object()) return Json::object();
  if (data.contains("validation_path")) data.erase("validation_split");
  for (const char* free :
       {"validation_path", "identity", "allow_changed", "skip_lines_without_text"})
    data.erase(free);
  // False says the same as nothing.
  for (const char* flag : {"document_mask", "reset_positions"})
    if (value_of(data, flag) == false) data.erase(flag);
  return data;
}

/// Runs whose config names no way pulled their keys.
void keep_rotate(const Manifest& manifest, v1::RunConfig* config) {
  const Json run = Json::parse(manifest.run_config);
  if (config->mesh().cp() <= 1 || value_of(value_of(run, "mesh"), "cp") != config->mesh().cp())
    return;
  const Json before = value_of(value_of(run, "plan"), "context_parallel");
  const Json rotate = value_of(before, "rotate"), degree = value_of(before, "ulysses_degree");
  v1::ContextParallelPlan& plan = *config->mutable_plan()->mutable_context_parallel();
  plan.set_rotate(rotate.is_string() && rotate != "auto" ? rotate.get<std::string>() : "pull");
  plan.clear_ulysses_degree();
  if (degree.is_number_integer()) plan.set_ulysses_degree(degree.get<int>());
}

/// Runs whose config names none dealt their tokens by documents, else by head and tail.
void keep_balancer(const Manifest& manifest, v1::RunConfig* config) {
  const Json run = Json::parse(manifest.run_config);
  if (config->mesh().cp() <= 1 || value_of(value_of(run, "mesh"), "cp") != config->mesh().cp())
    return;
  const Json before =
      value_of(value_of(value_of(run, "plan"), "context_parallel"), "load_balancer");
  const bool named = before.is_string() && before != "" && before != "auto";
  v1::ContextParallelPlan& plan = *config->mutable_plan()->mutable_context_parallel();
  plan.set_load_balancer(named                            ? before.get<std::string>()
                         : config->data().document_mask() ? "auto"
                                                          : "head_tail");
}

/// Runs of tokenized text that do not say whether special tokens stand around documents have the
/// tokens of a daemon that did not know the field, which left them out (resolve_document_tokens).
void keep_document_tokens(const v1::RunConfig& given, const Manifest& manifest,
                          const std::filesystem::path& tokenizer,
                          const std::filesystem::path& data_dir, v1::RunConfig* config) {
  v1::RunConfig before;
  if (given.data().has_add_special_tokens() ||
      !run_config_from_json(manifest.run_config, &before) ||
      before.data().has_add_special_tokens() || before.data().identity().tokenizer().empty())
    return;
  v1::DataConfig& data = *config->mutable_data();
  data.clear_add_special_tokens();
  if (data.has_masked_lm())
    *data.mutable_masked_lm()->mutable_special_tokens() = given.data().masked_lm().special_tokens();
  if (!data.identity().tokenizer().empty())
    data.mutable_identity()->set_tokenizer(tokenizer_identity(data, tokenizer, data_dir));
}

/// A template tells the time at which the first job was submitted.
void keep_chat_time(const v1::RunConfig& given, const Manifest& manifest,
                    const std::filesystem::path& tokenizer, const std::filesystem::path& data_dir,
                    v1::RunConfig* config) {
  v1::RunConfig before;
  v1::DataConfig& data = *config->mutable_data();
  if (given.data().chat().has_time() || !data.chat().has_time() ||
      !run_config_from_json(manifest.run_config, &before) || !before.data().chat().has_time())
    return;
  data.mutable_chat()->set_time(before.data().chat().time());
  data.mutable_identity()->set_tokenizer(tokenizer_identity(data, tokenizer, data_dir));
}

/// Which tokens are never hidden, where the job leaves it to the tokenizer: as the checkpoint has
/// it, which may be of a version that knew of none.
void keep_masked_tokens(const v1::RunConfig& given, const Manifest& manifest,
                        v1::RunConfig* config) {
  v1::RunConfig before;
  if (!config->data().has_masked_lm() || !given.data().masked_lm().special_tokens().empty() ||
      !run_config_from_json(manifest.run_config, &before) || !before.data().has_masked_lm())
    return;
  *config->mutable_data()->mutable_masked_lm()->mutable_special_tokens() =
      before.data().masked_lm().special_tokens();
}

}  // namespace

std::string to_json_text(const v1::RunConfig& config) { return message_to_json(config); }

bool run_config_from_json(const std::string& text, v1::RunConfig* config) {
  return message_from_json(text, config).empty();
}

nn::ModelConfig resumed_model(const DeclaredConfig& declared, const Manifest& checkpoint) {
  nn::ModelConfig model = declared.model;
  if (!declared.tied_weights.empty())
    model.tie_word_embeddings = nn::parse_hf_config(checkpoint.model_config).tie_word_embeddings;
  return model;
}

void check_same_model(const Manifest& manifest, const nn::ModelConfig& model,
                      const v1::OptimizerConfig* optimizer, const std::string& label) {
  const Json model_before = Json::parse(manifest.model_config);
  const Json model_now = Json::parse(nn::to_hf_config(model));
  for (const auto& [key, value] : model_now.items()) {
    if (key.find("pdrop") != std::string::npos || key.find("dropout") != std::string::npos)
      continue;
    if (const Json old = value_of(model_before, key); old != value)
      refuse(label, "another model", key, old, value);
  }
  if (optimizer == nullptr) return;
  v1::RunConfig config;
  *config.mutable_optimizer() = *optimizer;
  const auto type = [](const Json& run) { return value_of(value_of(run, "optimizer"), "type"); };
  const Json before = type(Json::parse(manifest.run_config));
  const Json now = type(Json::parse(to_json_text(config)));
  if (before != now) refuse(label, "another optimizer", "optimizer.type", before, now);
}

void check_resumable(const Manifest& manifest, const v1::RunConfig& config,
                     const nn::ModelConfig& model, const std::string& label) {
  check_same_model(manifest, model, &config.optimizer(), label);
  const Json before = Json::parse(manifest.run_config), now = Json::parse(to_json_text(config));
  constexpr const char* kAdvice =
      "; to train on other data, export the model and name its folder in model.hf_folder";
  const Json old_data = data_keys(before), new_data = data_keys(now);
  Json keys = old_data;
  keys.update(new_data);
  for (const auto& [key, unused] : keys.items())
    if (value_of(old_data, key) != value_of(new_data, key))
      refuse(label, "other data", "data." + key, value_of(old_data, key), value_of(new_data, key),
             kAdvice);
  const auto seq_len = [](const Json& run) {
    return value_of(value_of(run, "training"), "seq_len");
  };
  if (seq_len(before) != seq_len(now))
    refuse(label, "other data", "training.seq_len", seq_len(before), seq_len(now));
}

void resolve_resume_from(const v1::RunConfig& given, v1::RunConfig* config,
                         const std::filesystem::path& folder, const TokenizerSource& place) {
  const std::filesystem::path& data_dir = place.data_dir;
  const v1::RunConfig& resolved = *config;
  const std::string& label = resolved.checkpoint().resume_from();
  base::with_field(kResumeField, [&] {
    const Manifest manifest = read_manifest(folder);
    if (dtype_is_auto(given.plan())) {
      const Json dtype = value_of(value_of(Json::parse(manifest.run_config), "plan"), "dtype");
      if (dtype.is_string()) config->mutable_plan()->set_dtype(dtype.get<std::string>());
    }
    if (rotate_is_auto(given.plan())) keep_rotate(manifest, config);
    if (balancer_is_auto(given.plan())) keep_balancer(manifest, config);
    v1::RunConfig before;
    // Runs that left it open.
    if (!given.training().has_micro_batch_size() &&
        run_config_from_json(manifest.run_config, &before))
      keep_micro_batch(before, config);
    const std::filesystem::path tokenizer = tokenizer_folder(resolved, place);
    keep_document_tokens(given, manifest, tokenizer, data_dir, config);
    keep_chat_time(given, manifest, tokenizer, data_dir, config);
    keep_masked_tokens(given, manifest, config);
    const DeclaredConfig declared =
        load_declared_config(resolved.model(), data_dir, place.model_folder);
    check_resumable(manifest, resolved, resumed_model(declared, manifest), label);
    if (!manifest.data_identity.empty())
      check_same_data(data_identity_from_json(manifest.data_identity), resolved.data().identity(),
                      resolved.data().allow_changed(), label);
    if (manifest.step < resolved.training().steps()) return;
    base::refuse_field(
        "run.training.steps",
        "the job has {} steps and begins with {}, which has done {}: give more steps",
        resolved.training().steps(), label, manifest.step);
  });
}

}  // namespace meshloom::train
