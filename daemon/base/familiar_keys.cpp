// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/familiar_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace meshloom::base {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

struct Familiar {
  std::string_view key;
  const char* place;
};

constexpr const char* kDtype = "run.plan.dtype: float32, bfloat16 or auto";
constexpr const char* kMicro =
    "run.training.micro_batch_size, samples that a rank computes at once";
constexpr const char* kGlobal =
    "run.training.global_batch_size, samples of an optimizer step over all ranks";
constexpr const char* kAccumulation =
    "run.training.global_batch_size: how often gradients are accumulated follows from it and "
    "micro_batch_size";
constexpr const char* kSteps = "run.training.steps: a job is told by its optimizer steps";
constexpr const char* kSeqLen = "run.training.seq_len";
constexpr const char* kMaxNorm = "run.training.max_norm";
constexpr const char* kFullyShard = "run.plan.fully_shard: true, which is ZeRO stage 3";
constexpr const char* kCheckpointing = "run.plan.activation_checkpoint: none, selective or full";
constexpr const char* kFolder = "run.model.hf_folder, a folder below --data-dir";
constexpr const char* kData = "run.data.path, a file or folder below --data-dir";
constexpr const char* kDecayType = "run.lr_scheduler.decay_type: constant, linear, cosine or wsd";
constexpr const char* kPipeline =
    "not offered: there is no pipeline parallelism, take tp, fsdp or cp";
constexpr const char* kAdapters = "not offered: all parameters are trained";

// Of Hugging Face's Trainer, DeepSpeed, Megatron-LM, torchtitan, nanotron and nanoGPT.
constexpr Familiar kFamiliar[] = {
    {"learning_rate", "run.optimizer.lr"},
    {"max_learning_rate", "run.optimizer.lr"},
    {"adam_beta1", "run.optimizer.beta1"},
    {"adam_beta2", "run.optimizer.beta2"},
    {"betas", "run.optimizer.beta1 and run.optimizer.beta2"},
    {"adam_epsilon", "run.optimizer.eps"},
    {"adam_eps", "run.optimizer.eps"},
    {"epsilon", "run.optimizer.eps"},
    {"optim", "run.optimizer.type: adamw, adam or sgd"},
    {"optimizer_type", "run.optimizer.type: adamw, adam or sgd"},
    {"batch_size", kGlobal},
    {"train_batch_size", kGlobal},
    {"per_device_train_batch_size", kMicro},
    {"per_device_eval_batch_size", kMicro},
    {"train_micro_batch_size_per_gpu", kMicro},
    {"local_batch_size", kMicro},
    {"microbatch_size", kMicro},
    {"gradient_accumulation_steps", kAccumulation},
    {"accumulate_grad_batches", kAccumulation},
    {"epochs", kSteps},
    {"num_epochs", kSteps},
    {"num_train_epochs", kSteps},
    {"max_steps", kSteps},
    {"max_iters", kSteps},
    {"train_iters", kSteps},
    {"train_steps", kSteps},
    {"num_steps", kSteps},
    {"iterations", kSteps},
    {"total_steps", kSteps},
    {"max_seq_length", kSeqLen},
    {"max_seq_len", kSeqLen},
    {"max_length", kSeqLen},
    {"seq_length", kSeqLen},
    {"sequence_length", kSeqLen},
    {"block_size", kSeqLen},
    {"context_length", kSeqLen},
    {"max_grad_norm", kMaxNorm},
    {"gradient_clipping", kMaxNorm},
    {"grad_clip", kMaxNorm},
    {"clip_grad", kMaxNorm},
    {"clip_grad_norm", kMaxNorm},
    {"warmup_iters", "run.lr_scheduler.warmup_steps"},
    {"warmup_ratio", "run.lr_scheduler.warmup_steps, a number of steps"},
    {"lr_warmup_iters", "run.lr_scheduler.warmup_steps"},
    {"scheduler", kDecayType},
    {"lr_scheduler_type", kDecayType},
    {"lr_decay_style", kDecayType},
    {"min_lr", "run.lr_scheduler.min_lr_factor, the lowest lr / lr"},
    {"fp16", kDtype},
    {"bf16", kDtype},
    {"precision", kDtype},
    {"mixed_precision", kDtype},
    {"torch_dtype", kDtype},
    {"zero_stage", kFullyShard},
    {"zero_optimization", kFullyShard},
    {"tensor_parallel_size", "run.mesh.tp"},
    {"tensor_parallel_degree", "run.mesh.tp"},
    {"tensor_model_parallel_size", "run.mesh.tp"},
    {"context_parallel_size", "run.mesh.cp"},
    {"context_parallel_degree", "run.mesh.cp"},
    {"data_parallel_size", "run.mesh.dp"},
    {"data_parallel_replicate_degree", "run.mesh.dp"},
    {"data_parallel_shard_degree", "run.mesh.fsdp"},
    {"pp", kPipeline},
    {"pipeline_parallel_size", kPipeline},
    {"pipeline_parallel_degree", kPipeline},
    {"pipeline_model_parallel_size", kPipeline},
    {"lora", kAdapters},
    {"peft", kAdapters},
    {"gradient_checkpointing", kCheckpointing},
    {"activation_checkpointing", kCheckpointing},
    {"recompute_activations", kCheckpointing},
    {"save_steps", "run.checkpoint.interval"},
    {"save_interval", "run.checkpoint.interval"},
    {"save_total_limit", "run.checkpoint.keep_latest_k"},
    {"load_best_model_at_end", "run.checkpoint.keep_best, a number of checkpoints"},
    {"save_top_k", "run.checkpoint.keep_best"},
    {"early_stopping_patience", "run.training.early_stopping.patience"},
    {"early_stopping_threshold", "run.training.early_stopping.min_delta"},
    {"resume_from_checkpoint", "run.checkpoint.resume_from"},
    {"eval_steps", "run.validation.interval"},
    {"eval_interval", "run.validation.interval"},
    {"eval_iters", "run.validation.steps"},
    {"logging_steps", "not needed: metrics.jsonl has every step"},
    {"log_interval", "not needed: metrics.jsonl has every step"},
    {"output_dir",
     "not a job's: folders are below the daemon's --state-dir, and \"checkpoint "
     "download\" copies them"},
    {"out_dir",
     "not a job's: folders are below the daemon's --state-dir, and \"checkpoint "
     "download\" copies them"},
    {"dataset", kData},
    {"dataset_path", kData},
    {"data_path", kData},
    {"train_file", kData},
    {"train_data", kData},
    {"validation_file", "run.data.validation_path"},
    {"model_name_or_path", kFolder},
    {"model_path", kFolder},
    {"pretrained_model", kFolder},
};

std::string plain(std::string_view key) {
  std::string text(key);
  for (char& c : text)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// All places of a field of this name below `type`. Schemas of config files are trees.
void find_places(const Descriptor& type, const std::string& key, const std::string& path,
                 std::vector<std::string>* places) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string place = path.empty() ? field.name() : path + "." + field.name();
    if (field.name() == key) places->push_back(place);
    if (field.message_type() && !field.is_map() && !field.is_repeated())
      find_places(*field.message_type(), key, place, places);
  }
}

/// What another trainer calls so; null if none does, or where `root` has no run.
const Familiar* find_familiar(const std::string& key, const Descriptor& root) {
  if (!root.FindFieldByName("run")) return nullptr;
  const auto known = std::find_if(std::begin(kFamiliar), std::end(kFamiliar),
                                  [&](const Familiar& item) { return item.key == key; });
  return known == std::end(kFamiliar) ? nullptr : known;
}

bool names_a_place(const Familiar& known) {
  return std::string_view(known.place).substr(0, 4) == "run.";
}

/// The places of fields of this name, unless there are so many that they say nothing.
std::vector<std::string> few_places(const std::string& key, const Descriptor& root) {
  constexpr std::size_t kMostPlaces = 3;
  std::vector<std::string> places;
  find_places(root, key, "", &places);
  if (places.size() > kMostPlaces) places.clear();
  return places;
}

}  // namespace

std::string familiar_key(std::string_view key, const Descriptor& root) {
  const std::string wanted = plain(key);
  if (const Familiar* known = find_familiar(wanted, root))
    return (names_a_place(*known) ? "here it is " : "") + std::string(known->place);
  const auto places = few_places(wanted, root);
  return places.empty() ? "" : fmt::format("here it is {}", fmt::join(places, " or "));
}

std::vector<std::string> familiar_fields(std::string_view key, const Descriptor& root) {
  const std::string wanted = plain(key);
  const Familiar* known = find_familiar(wanted, root);
  if (!known) return few_places(wanted, root);
  // Behind the path is how its value is told, if anything.
  const std::string_view place = known->place;
  if (!names_a_place(*known)) return {};
  return {std::string(place.substr(0, place.find_first_of(":, ")))};
}

}  // namespace meshloom::base
