// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/resolve.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/field_checks.h"
#include "daemon/base/given_number.h"
#include "daemon/train/config/config_place.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/generation_config.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/missing_fields.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/config/resolve_services.h"
#include "daemon/train/data/batch_plan.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/optim/parameter_groups.h"
#include "planner/limits.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// Of a config whose mesh is resolved.
void resolve_training(v1::RunConfig& config, const nn::ModelConfig& model) {
  v1::TrainingConfig& training = *config.mutable_training();
  base::check_count("run.training.steps", training.steps(), 1);
  base::check_count("run.training.global_batch_size", training.global_batch_size(), 1);
  base::check_at_most("run.training.global_batch_size", training.global_batch_size(),
                      planner::kMostBatch);
  resolve_seq_len(training, model);
  const std::int64_t per_rank = rank_share(config);
  if (!training.has_micro_batch_size()) training.set_micro_batch_size(per_rank);
  if (training.micro_batch_size() > per_rank)
    base::refuse_field("run.training.micro_batch_size",
                       "{} is more than a rank's share of the global batch, {}",
                       training.micro_batch_size(), per_rank);
  base::check_given_positive("run.training.peak_flops", training.has_peak_flops(),
                             training.peak_flops(), "what meshloom-bench peak has measured");
  base::check_range("run.training.peak_flops", training.peak_flops(), 0.0, 1e30);
  resolve_step(training, 1.0);
}

/// `lr` is that of the optimizer.
void check_group(const v1::ParameterGroup& group, double lr, const std::string& field) {
  if (group.pattern().empty()) base::refuse_field(field + ".pattern", "is needed");
  if (group.has_lr() && group.has_lr_factor())
    base::refuse_field(field + ".lr_factor", "is given beside lr: give one of the two");
  if (!group.has_lr() && !group.has_lr_factor() && !group.has_weight_decay())
    base::refuse_field(field, "says nothing: give lr, lr_factor or weight_decay");
  base::check_range(field + ".lr", group.lr(), 0.0, 1e6);
  if (group.lr() > 0.0 && lr == 0.0)
    base::refuse_field(field + ".lr",
                       "is {}, but run.optimizer.lr is 0, and a group follows the schedule as a "
                       "multiple of it: give run.optimizer.lr the rate of this group, and others "
                       "lr: 0 or a place in run.training.frozen",
                       group.lr());
  base::check_range(field + ".lr_factor", group.lr_factor(), 0.0, 1e6);
  base::check_range(field + ".weight_decay", group.weight_decay(), 0.0, 1e6);
}

void resolve_schedule(v1::LrSchedulerConfig& schedule, std::int64_t steps) {
  if (schedule.decay_type() == v1::DECAY_TYPE_UNSPECIFIED)
    schedule.set_decay_type(v1::DECAY_TYPE_COSINE);
  if (!v1::DecayType_IsValid(schedule.decay_type()))
    base::refuse_field("run.lr_scheduler.decay_type", "has the unknown value {}",
                       static_cast<int>(schedule.decay_type()));
  base::check_count("run.lr_scheduler.warmup_steps", schedule.warmup_steps(), 0);
  if (schedule.warmup_steps() > steps)
    base::refuse_field("run.lr_scheduler.warmup_steps", "{} is more than the job's {} steps",
                       schedule.warmup_steps(), steps);
  if (!schedule.has_decay_ratio())
    schedule.set_decay_ratio(schedule.decay_type() == v1::DECAY_TYPE_WSD ? 0.2 : 1.0);
  if (!schedule.has_min_lr_factor()) schedule.set_min_lr_factor(0.1);
  base::check_range("run.lr_scheduler.decay_ratio", schedule.decay_ratio(), 0.0, 1.0);
  base::check_range("run.lr_scheduler.min_lr_factor", schedule.min_lr_factor(), 0.0, 1.0);
}

/// Which tokens of a sample a masked language model is asked for. `section` is the data's path.
void resolve_masked_lm(v1::DataConfig& data, const nn::ModelConfig& model,
                       const std::string& section) {
  const std::string field = section + ".masked_lm";
  if (model.is_causal()) {
    if (data.has_masked_lm())
      base::refuse_field(field, "is for BERT; other models learn the next token");
    return;
  }
  if (data.has_chat())
    base::refuse_field(section + ".chat", "is for models that learn the next token");
  if (!data.masked_lm().has_mask_token())
    base::refuse_field(field + ".mask_token", "is needed for BERT: the token that hides others");
  v1::MaskedLmConfig& masked = *data.mutable_masked_lm();
  if (!masked.has_probability()) masked.set_probability(0.15);
  if (!masked.has_mask_share()) masked.set_mask_share(0.8);
  if (!masked.has_random_share())
    masked.set_random_share(std::min(0.1, std::max(0.0, 1.0 - masked.mask_share())));
  base::check_range(field + ".probability", masked.probability(), 0.0, 1.0);
  base::check_range(field + ".mask_share", masked.mask_share(), 0.0, 1.0);
  base::check_range(field + ".random_share", masked.random_share(), 0.0, 1.0);
  if (masked.mask_share() + masked.random_share() > 1.0 + 1e-9)
    base::refuse_field(field + ".random_share", "{} and mask_share {} are more than 1 together",
                       masked.random_share(), masked.mask_share());
  const auto check_token = [&](const char* name, std::int64_t token) {
    if (token < 0 || token >= model.vocab_size)
      base::refuse_field(fmt::format("{}.{}", field, name),
                         "{} is not a token of the model (vocab_size {})", token, model.vocab_size);
  };
  check_token("mask_token", masked.mask_token());
  for (const std::int64_t token : masked.special_tokens()) check_token("special_tokens", token);
}

}  // namespace

void resolve_placement(v1::RunConfig& config, const nn::ModelConfig& model,
                       const ConfigPlace& place, std::vector<std::string>* warnings) {
  resolve_device(config, place.devices);
  resolve_mesh_and_plan(config, place.world_size);
  resolve_dtype(config, model, place.devices);
  const std::vector<std::string> doubts = check_plan_fits(config, model);
  if (warnings) warnings->insert(warnings->end(), doubts.begin(), doubts.end());
}

void check_document_balance(const v1::RunConfig& config) {
  if (balances_documents(config.plan()) && !config.data().document_mask())
    base::refuse_field("run.plan.context_parallel.load_balancer",
                       "is per_document, which needs run.data.document_mask: true");
}

void resolve_seq_len(v1::TrainingConfig& training, const nn::ModelConfig& model) {
  base::check_given_positive("run.training.seq_len", training.has_seq_len(), training.seq_len(),
                             "the model's context");
  base::check_given_positive("run.training.micro_batch_size", training.has_micro_batch_size(),
                             training.micro_batch_size(), "one that fits the memory");
  if (!training.has_seq_len()) training.set_seq_len(model.context_length());
  if (training.seq_len() > model.longest_sequence())
    base::refuse_field("run.training.seq_len", "{} is longer than the model's context of {}",
                       training.seq_len(), model.longest_sequence());
}

void resolve_step(v1::TrainingConfig& training, double default_max_norm) {
  if (training.micro_batch_size() * training.seq_len() > planner::kMostTokensAtOnce)
    base::refuse_field("run.training.micro_batch_size",
                       "{} samples of {} tokens are {} tokens at once, at most {} are allowed",
                       training.micro_batch_size(), training.seq_len(),
                       training.micro_batch_size() * training.seq_len(),
                       planner::kMostTokensAtOnce);
  if (!training.has_max_norm()) training.set_max_norm(default_max_norm);
  base::check_range("run.training.max_norm", training.max_norm(), 0.0, 1e30);
  if (!training.has_deterministic()) training.set_deterministic(true);
  if (!training.deterministic())
    base::field_not_offered("run.training.deterministic",
                            "false is not offered: nothing would be faster");
}

void resolve_optimizer(v1::OptimizerConfig& optimizer) {
  if (optimizer.type() == v1::OPTIMIZER_TYPE_UNSPECIFIED)
    optimizer.set_type(v1::OPTIMIZER_TYPE_ADAMW);
  if (!v1::OptimizerType_IsValid(optimizer.type()))
    base::refuse_field("run.optimizer.type", "has the unknown value {}",
                       static_cast<int>(optimizer.type()));
  if (!optimizer.has_lr()) optimizer.set_lr(3e-4);
  if (!optimizer.has_beta1()) optimizer.set_beta1(0.9);
  if (!optimizer.has_beta2()) optimizer.set_beta2(0.95);
  if (!optimizer.has_eps()) optimizer.set_eps(1e-8);
  if (!optimizer.has_weight_decay())
    optimizer.set_weight_decay(optimizer.type() == v1::OPTIMIZER_TYPE_ADAMW ? 0.1 : 0.0);
  if (!optimizer.has_momentum()) optimizer.set_momentum(0.0);
  base::check_range("run.optimizer.lr", optimizer.lr(), 0.0, 1e6);
  base::check_range("run.optimizer.beta1", optimizer.beta1(), 0.0, 1.0, true);
  base::check_range("run.optimizer.beta2", optimizer.beta2(), 0.0, 1.0, true);
  base::check_range("run.optimizer.eps", optimizer.eps(), 0.0, 1.0);
  base::check_range("run.optimizer.weight_decay", optimizer.weight_decay(), 0.0, 1e6);
  base::check_range("run.optimizer.momentum", optimizer.momentum(), 0.0, 1.0, true);
  const bool sgd = optimizer.type() == v1::OPTIMIZER_TYPE_SGD;
  if (!sgd && optimizer.momentum() != 0.0)
    base::refuse_field("run.optimizer.momentum", "is for sgd only");
  if (!sgd && optimizer.nesterov()) base::refuse_field("run.optimizer.nesterov", "is for sgd only");
  if (optimizer.nesterov() && optimizer.momentum() == 0.0)
    base::refuse_field("run.optimizer.nesterov", "needs a momentum above 0");
  for (int i = 0; i < optimizer.groups_size(); ++i)
    check_group(optimizer.groups(i), optimizer.lr(), fmt::format("run.optimizer.groups[{}]", i));
}

void resolve_data(v1::DataConfig& data, const nn::ModelConfig& model, const std::string& field) {
  if (!v1::DataFormat_IsValid(data.format()))
    base::refuse_field(field + ".format", "has the unknown value {}",
                       static_cast<int>(data.format()));
  if (data.tokenizer().empty() && model.vocab_size == kByteVocabulary) data.set_tokenizer("bytes");
  if (!data.has_validation_split()) data.set_validation_split(0.05);
  base::check_range(field + ".validation_split", data.validation_split(), 0.0, 1.0, true);
  if (!data.has_pack_documents()) data.set_pack_documents(true);
  if (data.has_document_end() && data.document_end() < 0)
    base::refuse_field(field + ".document_end", "must be a token id, got {}", data.document_end());
  if (data.reset_positions() && !data.document_mask())
    base::refuse_field(
        field + ".reset_positions",
        "is true, but {}.document_mask is false: a position that begins anew is told "
        "from the same one of another document by the mask alone",
        field);
  resolve_masked_lm(data, model, field);
}

void fill_masked_lm(v1::RunConfig& config, const nn::ModelConfig& model, const fs::path& tokenizer,
                    text::TokenizerCache& opened) {
  if (model.is_causal()) return;
  base::with_field("run.data.tokenizer",
                   [&] { fill_masked_tokens(*config.mutable_data(), tokenizer, opened); });
}

void resolve_settings(v1::RunConfig& config, const fs::path& data_dir,
                      const fs::path& model_folder) {
  base::check_count("run.training.steps", config.training().steps(), 1);
  base::check_range("run.optimizer.lr", config.optimizer().lr(), 0.0, 1e6);
  resolve_schedule(*config.mutable_lr_scheduler(), config.training().steps());
  resolve_services(config, nullptr);
  if (config.has_sample()) check_sample_interval(config.sample());
  const nn::ModelConfig model = load_model_config(config.model(), data_dir, model_folder);
  check_enough(config, open_run_data(config, model, data_dir));
}

v1::RunConfig resolve_run_config(const v1::RunConfig& given, const ConfigPlace& place,
                                 std::vector<std::string>* warnings) {
  const fs::path& data_dir = place.data_dir;
  const fs::path& model_folder = place.model_folder;
  v1::RunConfig config = given;
  check_missing_fields(given, place.tokenizers());
  // The tie of a checkpoint that it begins with is told by its run (agree_on_model).
  const nn::ModelConfig model =
      load_model_config(config.model(), data_dir, model_folder, base::own_disk(),
                        given.checkpoint().resume_from().empty() ? warnings : nullptr);
  const RunFiles files = find_run_files(config, data_dir, "run.data");
  resolve_chat(*config.mutable_data(), files, "run.data");
  check_document_balance(config);
  resolve_placement(config, model, place, warnings);
  resolve_training(config, model);
  resolve_context_parallel(config, model, place.ranks_of_host());
  resolve_optimizer(*config.mutable_optimizer());
  check_parameter_patterns(config, model);
  resolve_schedule(*config.mutable_lr_scheduler(), config.training().steps());
  const fs::path tokenizer = tokenizer_folder(config, place.tokenizers());
  text::TokenizerCache opened;
  fill_masked_lm(config, model, tokenizer, opened);
  resolve_data(*config.mutable_data(), model);
  resolve_services(config, warnings);
  if (config.has_sample()) {
    resolve_sample(config, model, tokenizer, data_dir, opened);
    note_end_tokens(config.model(), data_dir, model_folder, model.vocab_size, warnings);
  }
  TokenizedText text;
  text.tokenizer =
      resolve_text(*config.mutable_data(), model.vocab_size, tokenizer, opened, files, "run.data");
  if (warnings && !text.tokenizer.empty() && !tokenizer.empty() && !config.data().append_eos() &&
      !given.data().has_append_eos() && !config.data().has_chat())
    warnings->push_back(
        "run.data.append_eos: false, since the tokenizer names no eos_token: nothing stands "
        "between documents");
  const RunData data = open_run_data(config, model, files, "run.data", text);
  if (config.data().has_identity())
    check_same_data(config.data().identity(), data.identity, config.data().allow_changed(),
                    "data.identity");
  else
    *config.mutable_data()->mutable_identity() = data.identity;
  check_enough(config, data);
  return config;
}

}  // namespace meshloom::train
