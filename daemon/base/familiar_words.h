// SPDX-License-Identifier: Apache-2.0
// The table of what other trainers call the fields of a job.
#pragma once

#include <string_view>

namespace meshloom::base::familiar {

/// Familiar is a key of another trainer, and where it stands here: a path below a job, perhaps with
/// how its value is told behind it, or a sentence that begins with "not".
struct Familiar {
  std::string_view key;
  const char* place;
};

inline constexpr const char* kDtype = "run.plan.dtype: float32, bfloat16 or auto";
inline constexpr const char* kMicro =
    "run.training.micro_batch_size, samples that a rank computes at once";
inline constexpr const char* kGlobal =
    "run.training.global_batch_size, samples of an optimizer step over all ranks";
inline constexpr const char* kAccumulation =
    "run.training.global_batch_size: how often gradients are accumulated follows from it and "
    "micro_batch_size";
inline constexpr const char* kSteps = "run.training.steps: a job is told by its optimizer steps";
inline constexpr const char* kSeqLen = "run.training.seq_len";
inline constexpr const char* kMaxNorm = "run.training.max_norm";
inline constexpr const char* kFullyShard = "run.plan.fully_shard: true, which is ZeRO stage 3";
inline constexpr const char* kCheckpointing =
    "run.plan.activation_checkpoint: none, selective or full";
inline constexpr const char* kFolder = "run.model.hf_folder, a folder below --data-dir";
inline constexpr const char* kData = "run.data.path, a file or folder below --data-dir";
inline constexpr const char* kDecayType =
    "run.lr_scheduler.decay_type: constant, linear, cosine or wsd";
inline constexpr const char* kName = "name, a key of the whole file";
inline constexpr const char* kModel =
    "run.model.preset, hf_folder, config or name, of which one is given";
inline constexpr const char* kConfig =
    "run.model.config, a config.json with the sizes of the model; or a preset";
inline constexpr const char* kTokenizer = "run.data.tokenizer";
inline constexpr const char* kTextField = "run.data.field";
inline constexpr const char* kRanks =
    "not a job's: the ranks are those of the daemon (`meshloom up -n N`, mpirun -n N meshloomd)";
inline constexpr const char* kDevice = "run.device: auto, cpu, cuda or cuda:N";
inline constexpr const char* kOutput =
    "not a job's: folders are below the daemon's --state-dir, and \"checkpoint download\" copies "
    "them";
inline constexpr const char* kLogs =
    "not needed: metrics.jsonl has every step, and `meshloom job plot` draws it";
inline constexpr const char* kBuiltIn = "not needed: it is built in";
inline constexpr const char* kPipeline =
    "not offered: there is no pipeline parallelism, take tp, fsdp or cp";
inline constexpr const char* kAdapters = "not offered: all parameters are trained";

// The keys are those of Hugging Face's Trainer, DeepSpeed, Megatron-LM, torchtitan, nanotron and
// nanoGPT.
inline constexpr Familiar kFamiliar[] = {
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
    {"logging_steps", kLogs},
    {"log_interval", kLogs},
    {"output_dir", kOutput},
    {"out_dir", kOutput},
    {"dataset", kData},
    {"dataset_path", kData},
    {"data_path", kData},
    {"train_file", kData},
    {"train_data", kData},
    {"validation_file", "run.data.validation_path"},
    {"model_name_or_path", kFolder},
    {"model_path", kFolder},
    {"pretrained_model", kFolder},
    {"pretrained_model_name_or_path", kFolder},
    {"base_model", kFolder},
    {"init_from", kFolder},
    {"model_name", kModel},
    {"model_type", kModel},
    {"model_id", kModel},
    {"n_layer", kConfig},
    {"n_layers", kConfig},
    {"n_head", kConfig},
    {"n_heads", kConfig},
    {"n_embd", kConfig},
    {"hidden_size", kConfig},
    {"num_hidden_layers", kConfig},
    {"num_attention_heads", kConfig},
    {"vocab_size", kConfig},
    {"tokenizer_name", kTokenizer},
    {"tokenizer_path", kTokenizer},
    {"tokenizer_name_or_path", kTokenizer},
    {"tokenizer_type", kTokenizer},
    {"text_column", kTextField},
    {"dataset_text_field", kTextField},
    {"text_field", kTextField},
    {"packing", "run.data.pack_documents"},
    {"sample_packing", "run.data.pack_documents"},
    {"mlm_probability", "run.data.masked_lm.probability"},
    {"val_data", "run.data.validation_path"},
    {"eval_file", "run.data.validation_path"},
    {"test_size", "run.data.validation_split, a share of the data"},
    {"val_split", "run.data.validation_split, a share of the data"},
    {"batch", kGlobal},
    {"per_device_batch_size", kMicro},
    {"eval_batch_size", kMicro},
    {"gradient_accumulation", kAccumulation},
    {"max_epochs", kSteps},
    {"n_steps", kSteps},
    {"max_train_steps", kSteps},
    {"lr_decay_iters", kSteps},
    {"ctx_len", kSeqLen},
    {"n_ctx", kSeqLen},
    {"context_window", kSeqLen},
    {"sequence_len", kSeqLen},
    {"warmup", "run.lr_scheduler.warmup_steps"},
    {"num_warmup_steps", "run.lr_scheduler.warmup_steps"},
    {"lr_schedule", kDecayType},
    {"schedule", kDecayType},
    {"scheduler_type", kDecayType},
    {"dropout_rate", "run.model.dropout"},
    {"eval_every", "run.validation.interval"},
    {"eval_frequency", "run.validation.interval"},
    {"val_interval", "run.validation.interval"},
    {"val_check_interval", "run.validation.interval"},
    {"eval_strategy", "run.validation.interval, a number of steps"},
    {"evaluation_strategy", "run.validation.interval, a number of steps"},
    {"save_every", "run.checkpoint.interval"},
    {"checkpoint_interval", "run.checkpoint.interval"},
    {"ckpt_interval", "run.checkpoint.interval"},
    {"save_strategy", "run.checkpoint.interval, a number of steps"},
    {"resume", "run.checkpoint.resume_from"},
    {"load_checkpoint", "run.checkpoint.resume_from"},
    {"random_seed", "run.training.seed"},
    {"dp_size", "run.mesh.dp"},
    {"fsdp_size", "run.mesh.fsdp"},
    {"tp_size", "run.mesh.tp"},
    {"cp_size", "run.mesh.cp"},
    {"num_gpus", kRanks},
    {"gpus", kRanks},
    {"devices", kRanks},
    {"nproc_per_node", kRanks},
    {"num_processes", kRanks},
    {"world_size", kRanks},
    {"num_nodes", kRanks},
    {"device", kDevice},
    {"device_type", kDevice},
    {"accelerator", kDevice},
    {"gpu", kDevice},
    {"cuda", kDevice},
    {"use_cuda", kDevice},
    {"no_cuda", kDevice},
    {"use_cpu", kDevice},
    {"run_name", kName},
    {"job_name", kName},
    {"experiment_name", kName},
    {"tags", "labels, a key of the whole file"},
    {"save_dir", kOutput},
    {"checkpoint_dir", kOutput},
    {"logging_dir", kOutput},
    {"log_every", kLogs},
    {"report_to", kLogs},
    {"wandb", kLogs},
    {"wandb_project", kLogs},
    {"tensorboard", "run.metrics.tensorboard: true, which is the default"},
    {"num_workers", "not needed: batches are made ahead of the steps"},
    {"dataloader_num_workers", "not needed: batches are made ahead of the steps"},
    {"compile", kBuiltIn},
    {"torch_compile", kBuiltIn},
    {"flash_attention", kBuiltIn},
    {"use_flash_attention", kBuiltIn},
    {"attn_implementation", kBuiltIn},
    {"do_train", "not needed: a job trains"},
    {"do_eval", "run.validation.interval"},
    {"lora_r", kAdapters},
    {"lora_alpha", kAdapters},
    {"use_peft", kAdapters},
    {"load_in_4bit", kAdapters},
    {"push_to_hub", "not offered: `meshloom checkpoint export` writes a folder to send"},
    {"label_smoothing", "not offered: the loss is cross entropy"},
    {"num_experts", "not offered: there are no mixtures of experts"},
};

}  // namespace meshloom::base::familiar
