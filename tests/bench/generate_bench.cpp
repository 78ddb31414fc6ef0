// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "daemon/nn/generate.h"
#include "daemon/nn/initialize_part.h"
#include "daemon/nn/models/model.h"
#include "daemon/nn/models/presets.h"
#include "daemon/tensor/execution_context.h"
#include "kernels/backend_table.h"
#include "kernels/base/philox.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_device.h"
#include "tests/bench/device_timing.h"
#include "tests/bench/probe.h"

namespace meshloom::bench {
namespace {

struct GenerateOptions {
  std::string model = "gpt2_124m";
  std::string device = "cpu";
  std::string dtype = "float32";
  int threads = 0;
  std::int64_t batch = 1;
  std::int64_t prompt = 512;
  bool ragged = false;
  std::int64_t tokens = 32;
  int rounds = 5;
};

std::vector<std::int64_t> random_ids(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  const PhiloxStream random{1, 2};
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int64_t>(random.at(i)) % vocabulary;
  return ids;
}

double parameter_bytes(nn::Model& model) {
  double bytes = 0.0;
  for (const nn::NamedParameter& item : model.named_parameters()) {
    const Tensor& value = item.parameter->value;
    bytes += static_cast<double>(value.numel()) * static_cast<double>(dtype_size(value.dtype()));
  }
  return bytes;
}

struct Seconds {
  /// Medians: all tokens of the prompts; one token each; the same with the choice of the tokens.
  double training_forward, prefill, decode, drawn;
};

// Tokens of the prompt of each sequence: all alike, or evenly spread up to the longest.
std::vector<std::int64_t> prompt_lengths(const GenerateOptions& options) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 1; i <= options.batch; ++i)
    lengths.push_back(options.ragged ? std::max<std::int64_t>(options.prompt * i / options.batch, 1)
                                     : options.prompt);
  return lengths;
}

// Seconds of each pass of a generation that gives every sequence a token. As many sequences as
// share a pass at most.
std::vector<double> draw(nn::Model& model, const GenerateOptions& options) {
  std::vector<nn::GenerateSequence> sequences;
  for (const std::int64_t length : prompt_lengths(options)) {
    sequences.push_back({random_ids(length, model.config().vocab_size), {}});
    sequences.back().options.max_tokens = options.tokens + 1;  // the first comes with the prompt
    sequences.back().options.stop_at_eos = false;
  }
  const std::size_t count = std::min(sequences.size(), nn::Generation::kPassRows);
  nn::Generation generation(model, std::move(sequences));
  std::vector<double> seconds;
  while (!generation.done()) {
    const auto begin = Clock::now();
    const std::size_t tokens = generation.advance().size();
    if (tokens == count) seconds.push_back(seconds_since(begin));
  }
  return seconds;
}

// Seconds of what a call gives the device to do.
template <typename Call>
double seconds_on_device(const ExecutionContext& context, Call&& call) {
  const auto end = context.backend().make_event();
  const auto begin = Clock::now();
  call();
  end->record(context.kernel_context().stream);
  end->wait();
  return seconds_since(begin);
}

// One forward as training runs it, prompts fed to a cache each, then single positions of all
// together.
Seconds measure(nn::Model& model, const GenerateOptions& options) {
  ExecutionContext& context = model.context();
  const nn::ModelConfig& config = model.config();
  const Tensor prompts = from_values(context, {options.batch, options.prompt},
                                     random_ids(options.batch * options.prompt, config.vocab_size));
  std::vector<Tensor> fed;
  for (const std::int64_t length : prompt_lengths(options))
    fed.push_back(from_values(context, {1, length}, random_ids(length, config.vocab_size)));
  const Tensor next =
      from_values(context, {options.batch, 1}, random_ids(options.batch, config.vocab_size));
  std::vector<double> training, prefill, decode, drawn;
  for (int round = 0; round <= options.rounds; ++round) {
    const double forward = seconds_on_device(context, [&] {
      const GradModeGuard no_gradient(context, false);
      nn::Batch batch;
      batch.input_ids = batch.labels = prompts;
      model.loss(batch, 1.0f, {});
    });
    std::vector<std::unique_ptr<nn::KvCache>> owners;
    std::vector<nn::KvCache*> caches;
    const double fill = seconds_on_device(context, [&] {
      for (const Tensor& prompt : fed) {
        owners.push_back(model.make_cache(options.prompt + options.tokens));
        caches.push_back(owners.back().get());
        model.decode(prompt, *caches.back());
      }
    });
    for (std::int64_t i = 0; i < options.tokens; ++i) {
      const double token = seconds_on_device(context, [&] { model.decode(next, caches); });
      if (round > 0) decode.push_back(token);
    }
    if (round == 0) continue;  // it made what later rounds find made
    training.push_back(forward);
    prefill.push_back(fill);
    const std::vector<double> passes = draw(model, options);
    drawn.insert(drawn.end(), passes.begin(), passes.end());
  }
  return {percentile(training, 0.5), percentile(prefill, 0.5), percentile(decode, 0.5),
          percentile(drawn, 0.5)};
}

/// What a device can do at best: operations, bytes that a copy moves, and bytes that are only read
/// (0: not measured).
struct Ceilings {
  double operations, copy, reading;
};

Ceilings measure_ceilings_of(const ExecutionContext& context, DType dtype, bool emulated) {
  if (context.device() != kCpuDevice) {
    DeviceTiming timing(context.device(), emulated ? 0.0 : 0.1);
    const DeviceCeilings found = measure_ceilings(timing, emulated);
    return {found.product, found.copy, 0.0};
  }
  const Threads threads = context.threads();
  const double fma = fma_flops_per_second(threads);
  const double dot = bfloat16_flops_per_second(threads);
  return {dtype == DType::kBFloat16 ? std::max(fma, dot) : fma,
          copy_bytes_per_second(threads, CopyKind::kNonTemporal), read_bytes_per_second(threads)};
}

}  // namespace

int run_generate_bench(int argc, char** argv) {
  GenerateOptions options;
  CLI::App app("Prompts and single tokens of a model with random weights, one rank.",
               "meshloom-bench generate");
  app.add_option("--model", options.model, "preset")->capture_default_str();
  add_device_option(app, options.device);
  app.add_option("--dtype", options.dtype, "float32 or bfloat16")->capture_default_str();
  app.add_option("--threads", options.threads, "0: all cores");
  app.add_option("--batch", options.batch, "prompts at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prompt", options.prompt, "tokens of a prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--ragged", options.ragged,
               "prompts of different lengths, evenly spread up to --prompt");
  app.add_option("--tokens", options.tokens, "tokens drawn of each prompt in a round")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "timed rounds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::optional<DType> dtype = dtype_from_name(options.dtype);
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16)
    throw CLI::ValidationError("--dtype", "float32 or bfloat16");

  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const Threads threads{options.threads > 0 ? options.threads : cores};
  ExecutionContext::Options context_options;
  context_options.threads = threads;
  context_options.device = open_bench_device(options.device);
  ExecutionContext context(context_options);
  const auto model = nn::make_model(context, nn::preset_config(options.model), *dtype);
  nn::initialize_parameters(*model, 1);
  const Seconds seconds = measure(*model, options);

  const Ceilings ceilings = measure_ceilings_of(context, *dtype, options.device == "cuda-emulated");
  const double weights = parameter_bytes(*model);
  double prompt_tokens = 0.0;
  for (const std::int64_t length : prompt_lengths(options))
    prompt_tokens += static_cast<double>(length);
  const double flops = 2.0 * static_cast<double>(nn::parameter_count(model->config()));
  nlohmann::json line = {
      {"bench", "generate"},
      {"device", options.device},
      {"model", options.model},
      {"cpu_class", kernels::backend_for(kCpuDevice).describe().compute_class},
      {"dtype", options.dtype},
      {"threads", threads.count},
      {"batch", options.batch},
      {"prompt", options.prompt},
      {"ragged", options.ragged},
      {"prefill_tokens_per_second", prompt_tokens / seconds.prefill},
      {"prefill_over_training_forward", seconds.training_forward * prompt_tokens /
                                            static_cast<double>(options.batch * options.prompt) /
                                            seconds.prefill},
      {"prefill_over_probe", flops * prompt_tokens / seconds.prefill / ceilings.operations},
      {"decode_tokens_per_second", static_cast<double>(options.batch) / seconds.decode},
      {"decode_seconds", seconds.decode},
      {"drawn_tokens_per_second",
       static_cast<double>(std::min<std::int64_t>(options.batch, nn::Generation::kPassRows)) /
           seconds.drawn},
      {"weight_bytes", weights},
      {"copy_bytes_per_second", ceilings.copy},
      // A copy reads half of what it moves.
      {"weights_read_once_over_decode", weights / ceilings.copy / seconds.decode}};
  if (ceilings.reading > 0.0) {
    line["read_bytes_per_second"] = ceilings.reading;
    line["weights_over_plain_reading"] = weights / ceilings.reading / seconds.decode;
  }
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace meshloom::bench
