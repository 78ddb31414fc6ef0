// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/resolve.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/given_number.h"
#include "daemon/train/checkpoint/hf_byte_tokenizer.h"
#include "daemon/train/data/batch_plan.h"
#include "daemon/train/data/chat_data.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/data/wide_tokens.h"
#include "daemon/train/dtype_choice.h"
#include "daemon/train/field_checks.h"
#include "daemon/train/generation_config.h"
#include "daemon/train/micro_batch.h"
#include "daemon/train/missing_fields.h"
#include "daemon/train/model_source.h"
#include "daemon/train/optim/parameter_groups.h"
#include "daemon/train/paths.h"
#include "daemon/train/resolve_plan.h"
#include "daemon/train/resolve_services.h"
#include "daemon/train/run.h"
#include "planner/limits.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// Of a config whose mesh is resolved.
void resolve_training(v1::RunConfig& config, const nn::ModelConfig& model) {
  v1::TrainingConfig& training = *config.mutable_training();
  check_count("run.training.steps", training.steps(), 1);
  check_count("run.training.global_batch_size", training.global_batch_size(), 1);
  check_at_most("run.training.global_batch_size", training.global_batch_size(),
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
  check_range("run.training.peak_flops", training.peak_flops(), 0.0, 1e30);
  resolve_step(training, 1.0);
}

/// `lr` is that of the optimizer.
void check_group(const v1::ParameterGroup& group, double lr, const std::string& field) {
  if (group.pattern().empty()) base::refuse_field(field + ".pattern", "is needed");
  if (group.has_lr() && group.has_lr_factor())
    base::refuse_field(field + ".lr_factor", "is given beside lr: give one of the two");
  if (!group.has_lr() && !group.has_lr_factor() && !group.has_weight_decay())
    base::refuse_field(field, "says nothing: give lr, lr_factor or weight_decay");
  check_range(field + ".lr", group.lr(), 0.0, 1e6);
  if (group.lr() > 0.0 && lr == 0.0)
    base::refuse_field(field + ".lr",
                       "is {}, but run.optimizer.lr is 0, and a group follows the schedule as a "
                       "multiple of it: give run.optimizer.lr the rate of this group, and others "
                       "lr: 0 or a place in run.training.frozen",
                       group.lr());
  check_range(field + ".lr_factor", group.lr_factor(), 0.0, 1e6);
  check_range(field + ".weight_decay", group.weight_decay(), 0.0, 1e6);
}

void resolve_schedule(v1::LrSchedulerConfig& schedule, std::int64_t steps) {
  if (schedule.decay_type() == v1::DECAY_TYPE_UNSPECIFIED)
    schedule.set_decay_type(v1::DECAY_TYPE_COSINE);
  if (!v1::DecayType_IsValid(schedule.decay_type()))
    base::refuse_field("run.lr_scheduler.decay_type", "has the unknown value {}",
                       static_cast<int>(schedule.decay_type()));
  check_count("run.lr_scheduler.warmup_steps", schedule.warmup_steps(), 0);
  if (schedule.warmup_steps() > steps)
    base::refuse_field("run.lr_scheduler.warmup_steps", "{} is more than the job's {} steps",
                       schedule.warmup_steps(), steps);
  if (!schedule.has_decay_ratio())
    schedule.set_decay_ratio(schedule.decay_type() == v1::DECAY_TYPE_WSD ? 0.2 : 1.0);
  if (!schedule.has_min_lr_factor()) schedule.set_min_lr_factor(0.1);
  check_range("run.lr_scheduler.decay_ratio", schedule.decay_ratio(), 0.0, 1.0);
  check_range("run.lr_scheduler.min_lr_factor", schedule.min_lr_factor(), 0.0, 1.0);
}

/// Which tokens of a sample a masked language model is asked for. `section` is the data's path.
void resolve_masked_lm(v1::DataConfig& data, const nn::ModelConfig& model,
                       const std::string& section) {
  const std::string field = section + ".masked_lm";
  if (model.architecture != nn::Architecture::kBert) {
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
  check_range(field + ".probability", masked.probability(), 0.0, 1.0);
  check_range(field + ".mask_share", masked.mask_share(), 0.0, 1.0);
  check_range(field + ".random_share", masked.random_share(), 0.0, 1.0);
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

/// One of the data paths of a config.
struct OpenedPath {
  std::shared_ptr<const TokenStream> stream;  ///< null: text whose tokens are not made yet
  v1::DataIdentity identity;
  TokenBytes bytes;  ///< of text, that its tokens stand for
};

/// `tokens` is the file of its tokens, if they are made.
OpenedPath open_path(const v1::DataConfig& data, const DataFiles& files, const fs::path& tokens,
                     const std::string& tokenizer, const std::string& field, base::Disk& disk) {
  const auto open = [&](const DataFiles& found) {
    return std::make_shared<const TokenStream>(TokenStream::open(found, disk));
  };
  OpenedPath opened;
  if (is_tokenized(data, files.format)) {
    opened.identity =
        base::with_field(field, [&] { return identify_text(files, tokenizer, disk); });
    if (tokens.empty()) return opened;
    opened.stream = open(find_data_files(tokens, TokenFormat::kLlmc, {}, disk));
    opened.identity.set_tokens(opened.stream->size());
    opened.bytes = mean_token_bytes(*opened.stream);
    return opened;
  }
  base::with_field(field, [&] {
    opened.stream = open(files);
    opened.identity = identify(*opened.stream);
    opened.bytes = mean_token_bytes(*opened.stream);
  });
  return opened;
}

/// What the data's options and the model ask of the tokens. `field` is that of the section.
void check_stream(const v1::DataConfig& data, const TokenStream& stream, std::int64_t vocab_size,
                  const std::string& field) {
  if (stream.is_chat() && data.has_document_end())
    base::refuse_field(field + ".document_end",
                       "is not for conversations, which are told apart without it");
  if (stream.is_chat() && data.has_masked_lm())
    base::refuse_field(field + ".path",
                       "holds conversations, which are for models that learn the next token");
  const bool wants_documents =
      (!data.pack_documents() || data.document_mask()) && !stream.is_chat();
  if (wants_documents && stream.format() != TokenFormat::kText && !data.has_document_end())
    base::refuse_field(field + ".document_end", "is needed to find the documents of a {} file",
                       token_format_name(stream.format()));
  // Upper halves of the ids of a large vocabulary are more than 0.
  if (vocab_size > kNarrowVocabulary)
    base::with_field(field + ".path",
                     [&] { refuse_wide_tokens(stream, (vocab_size - 1) / kNarrowVocabulary); });
  if (stream.format() == TokenFormat::kText && vocab_size < kByteVocabulary)
    base::refuse_field(field + ".path", "text has 256 byte tokens, the model's vocab_size is {}",
                       vocab_size);
}

DatasetOptions dataset_options(const v1::RunConfig& config, const nn::ModelConfig& model) {
  const v1::DataConfig& data = config.data();
  DatasetOptions options;
  options.seq_len = config.training().seq_len();
  options.vocab_size = model.vocab_size;
  options.pack_documents = data.pack_documents();
  options.document_mask = data.document_mask();
  options.reset_positions = data.reset_positions();
  if (data.has_document_end()) options.document_end = data.document_end();
  if (data.has_masked_lm()) {
    const v1::MaskedLmConfig& masked = data.masked_lm();
    options.masked = MaskedLmOptions{
        .vocab_size = model.vocab_size,
        .mask_token = masked.mask_token(),
        .probability = masked.probability(),
        .mask_share = masked.mask_share(),
        .random_share = masked.random_share(),
        .special_tokens = {masked.special_tokens().begin(), masked.special_tokens().end()}};
    // A model that sees both sides must not see padding.
    if (!data.pack_documents()) options.document_mask = true;
  }
  return options;
}

}  // namespace

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
  check_range("run.training.max_norm", training.max_norm(), 0.0, 1e30);
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
  check_range("run.optimizer.lr", optimizer.lr(), 0.0, 1e6);
  check_range("run.optimizer.beta1", optimizer.beta1(), 0.0, 1.0, true);
  check_range("run.optimizer.beta2", optimizer.beta2(), 0.0, 1.0, true);
  check_range("run.optimizer.eps", optimizer.eps(), 0.0, 1.0);
  check_range("run.optimizer.weight_decay", optimizer.weight_decay(), 0.0, 1e6);
  check_range("run.optimizer.momentum", optimizer.momentum(), 0.0, 1.0, true);
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
  check_range(field + ".validation_split", data.validation_split(), 0.0, 1.0, true);
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
  if (model.architecture != nn::Architecture::kBert) return;
  base::with_field("run.data.tokenizer",
                   [&] { fill_masked_tokens(*config.mutable_data(), tokenizer, opened); });
}

RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const fs::path& data_dir, const std::string& field, const TokenizedText& text,
                      base::Disk& disk) {
  return open_run_data(config, model, find_run_files(config, data_dir, field, disk), field, text,
                       disk);
}

RunData open_run_data(const v1::RunConfig& config, const nn::ModelConfig& model,
                      const RunFiles& files, const std::string& field, const TokenizedText& text,
                      base::Disk& disk) {
  const v1::DataConfig& data = config.data();
  const TokenBytes by_token =
      text.token_bytes.empty() ? TokenBytes() : TokenBytes(text.token_bytes);
  const auto open = [&](const DataFiles& found, const fs::path& tokens, const std::string& path) {
    OpenedPath opened = open_path(data, found, tokens, text.tokenizer, path, disk);
    if (!opened.stream) return opened;
    if (!tokens.empty() && by_token.known()) opened.bytes = by_token;
    check_stream(data, *opened.stream, model.vocab_size, field);
    return opened;
  };
  const DatasetOptions options = dataset_options(config, model);
  DatasetOptions all = options;  // losses are of every token
  all.keep_rest = true;
  const auto part = [](const OpenedPath& opened, TokenRange range, DatasetOptions as) {
    as.bytes = opened.bytes;
    return std::make_shared<const Dataset>(opened.stream, range, as);
  };
  const auto whole = [&](const OpenedPath& opened, const DatasetOptions& as) {
    return part(opened, {0, opened.stream->size()}, as);
  };
  const OpenedPath training = open(files.training, text.tokens, field + ".path");
  const RunData not_tokenized{nullptr, nullptr, {}, training.identity};
  const auto& stream = training.stream;
  RunData data_of_run = not_tokenized;
  for (std::size_t i = 0; i < files.sets.size(); ++i) {
    const fs::path tokens = i < text.set_tokens.size() ? text.set_tokens[i] : fs::path();
    const OpenedPath set = open(files.sets[i], tokens, validation_set_field(i));
    if (!set.stream) return not_tokenized;
    data_of_run.validation_sets.push_back(whole(set, all));
  }
  if (files.validation) {
    const OpenedPath other =
        open(*files.validation, text.validation_tokens, field + ".validation_path");
    if (!stream || !other.stream) return not_tokenized;
    data_of_run.training = whole(training, options);
    data_of_run.validation = whole(other, all);
    return data_of_run;
  }
  if (!stream) return not_tokenized;
  const auto held_out = static_cast<std::int64_t>(
      std::floor(data.validation_split() * static_cast<double>(stream->size())));
  std::int64_t split = stream->size() - held_out;
  if ((!options.pack_documents || stream->is_chat()) && held_out > 0)
    split = next_document_start(*stream, options, split);
  data_of_run.training = part(training, {0, split}, options);
  data_of_run.validation = part(training, {split, stream->size()}, all);
  return data_of_run;
}

namespace {

void check_trained_on(const v1::RunConfig& config, const RunData& data) {
  if (const ChatSamples* chat = data.training->chat(); chat != nullptr && chat->size() == 0)
    base::refuse_field("run.data.path",
                       "none of its {} conversations has a token to learn from in its first "
                       "seq_len + 1 = {} tokens",
                       chat->cuts().left_out, config.training().seq_len() + 1);
  if (data.training->size() == 0)
    base::refuse_field("run.data.path",
                       "{} training tokens hold no sample of seq_len + 1 = {} tokens",
                       data.training->tokens(), config.training().seq_len() + 1);
  if (data.training->size() < config.training().global_batch_size())
    base::refuse_field("run.training.global_batch_size",
                       "{} is more than the {} samples of {} tokens that the data holds",
                       config.training().global_batch_size(), data.training->size(),
                       config.training().seq_len());
}

}  // namespace

void check_enough(const v1::RunConfig& config, const RunData& data) {
  if (!data.training) return;  // its tokens are not made yet
  if (config.training().steps() > 0) check_trained_on(config, data);
  const auto check_validated_on = [](const Dataset& dataset, const std::string& field) {
    if (dataset.size() == 0)
      base::refuse_field(field, "{} tokens hold nothing to predict", dataset.tokens());
  };
  const bool has_path = !config.data().validation_path().empty();
  if (config.validation().interval() > 0)
    check_validated_on(*data.validation,
                       has_path ? "run.data.validation_path" : "run.data.validation_split");
  for (std::size_t i = 0; i < data.validation_sets.size(); ++i)
    check_validated_on(*data.validation_sets[i], validation_set_field(i));
}

void resolve_settings(v1::RunConfig& config, const fs::path& data_dir,
                      const fs::path& model_folder) {
  check_count("run.training.steps", config.training().steps(), 1);
  check_range("run.optimizer.lr", config.optimizer().lr(), 0.0, 1e6);
  resolve_schedule(*config.mutable_lr_scheduler(), config.training().steps());
  resolve_services(config, nullptr);
  if (config.has_sample()) check_sample_interval(config.sample());
  const nn::ModelConfig model = load_model_config(config.model(), data_dir, model_folder);
  check_enough(config, open_run_data(config, model, data_dir));
}

v1::RunConfig resolve_run_config(const v1::RunConfig& given, int world_size,
                                 const fs::path& data_dir, std::vector<std::string>* warnings,
                                 const fs::path& model_folder, int ranks_per_host,
                                 const fs::path& named_tokenizer, const WorldDevices& devices) {
  v1::RunConfig config = given;
  check_missing_fields(given, {data_dir, model_folder, named_tokenizer});
  // The tie of a checkpoint that it begins with is told by its run (agree_on_model).
  const nn::ModelConfig model =
      load_model_config(config.model(), data_dir, model_folder, base::own_disk(),
                        given.checkpoint().resume_from().empty() ? warnings : nullptr);
  const RunFiles files = find_run_files(config, data_dir, "run.data");
  resolve_chat(*config.mutable_data(), files, "run.data");
  if (balances_documents(config.plan()) && !config.data().document_mask())
    base::refuse_field("run.plan.context_parallel.load_balancer",
                       "is per_document, which needs run.data.document_mask: true");
  resolve_device(config, devices);
  resolve_mesh_and_plan(config, world_size);
  resolve_dtype(config, model, devices);
  const std::vector<std::string> doubts = check_plan_fits(config, model);
  if (warnings) warnings->insert(warnings->end(), doubts.begin(), doubts.end());
  resolve_training(config, model);
  resolve_context_parallel(config, model, ranks_per_host == 0 ? world_size : ranks_per_host);
  resolve_optimizer(*config.mutable_optimizer());
  check_parameter_patterns(config, model);
  resolve_schedule(*config.mutable_lr_scheduler(), config.training().steps());
  const fs::path tokenizer = tokenizer_folder(config, {data_dir, model_folder, named_tokenizer});
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
