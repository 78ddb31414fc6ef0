// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/plan/job_memory.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run.h"
#include "kernels/backend_table.h"
#include "kernels/base/philox.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_device.h"
#include "tests/bench/device_timing.h"
#include "tests/bench/probe.h"
#include "tests/bench/profiling_backend.h"
#include "tests/bench/resident_memory.h"
#include "tests/support/local_job.h"
#include "tests/support/temp_folder.h"

namespace meshloom::bench {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  std::string model = "byte_gpt_10m";
  std::string mesh;
  int local_ranks = 1;
  std::int64_t seq = 0;
  std::int64_t batch = 1;
  std::int64_t micro_batch = 0;
  std::string dtype = "auto";
  std::int64_t steps = 10;
  std::int64_t warmup = 2;
  int threads = 0;
  double dropout = -1.0;
  std::string activation_checkpoint = "none";
  bool sequence_parallel = false;
  std::string fusion = "auto";
  bool no_reshard = false;
  bool profile = false;
  std::string device = "cpu";
};

/// "dp=2,tp=2"
v1::Mesh mesh_of(const TrainOptions& options) {
  v1::Mesh mesh;
  std::istringstream dims(options.mesh);
  for (std::string dim; std::getline(dims, dim, ',');) {
    const auto equals = dim.find('=');
    const std::string name = dim.substr(0, equals);
    const auto* field = v1::Mesh::descriptor()->FindFieldByName(name);
    const int size = equals == std::string::npos ? 0 : std::atoi(dim.c_str() + equals + 1);
    if (field == nullptr || size < 1)
      throw CLI::ValidationError("--mesh",
                                 "dims dp, fsdp, cp and tp with their sizes are expected");
    v1::Mesh::GetReflection()->SetInt32(&mesh, field, size);
  }
  return mesh;
}

/// --mesh and --local-ranks N both say how many ranks there are.
int ranks_of(const TrainOptions& options) {
  if (options.mesh.empty()) return options.local_ranks;
  const v1::Mesh mesh = mesh_of(options);
  return std::max(1, mesh.dp()) * std::max(1, mesh.fsdp()) * std::max(1, mesh.cp()) *
         std::max(1, mesh.tp());
}

/// Random tokens, enough for all steps.
void write_tokens(const fs::path& path, std::int64_t vocab_size, std::int64_t count) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240801;
  header[1] = 7;
  header[2] = static_cast<std::int32_t>(count);
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  const PhiloxStream random{1, 2};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = random.at(i) % static_cast<std::uint32_t>(vocab_size);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()), 1024);
  file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(count * 4));
}

v1::RunConfig make_config(const TrainOptions& options, const fs::path& folder) {
  v1::RunConfig config;
  if (fs::exists(options.model)) {
    fs::copy_file(options.model, folder / "config.json");
    config.mutable_model()->set_config("config.json");
  } else {
    config.mutable_model()->set_preset(options.model);
  }
  if (options.dropout >= 0.0) config.mutable_model()->set_dropout(options.dropout);
  *config.mutable_mesh() = mesh_of(options);
  config.mutable_plan()->set_dtype(options.dtype);
  config.mutable_plan()->set_sequence_parallel(options.sequence_parallel);
  if (options.fusion != "auto") config.mutable_plan()->mutable_fusion()->set_mode(options.fusion);
  if (options.no_reshard)
    config.mutable_plan()->mutable_fully_shard_options()->set_reshard_after_forward(false);
  if (options.activation_checkpoint == "full")
    config.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
  if (options.activation_checkpoint == "selective")
    config.mutable_plan()->set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_SELECTIVE);
  auto& training = *config.mutable_training();
  training.set_steps(options.steps + options.warmup);
  training.set_seq_len(options.seq);
  training.set_global_batch_size(options.batch);
  if (options.micro_batch > 0) training.set_micro_batch_size(options.micro_batch);
  config.mutable_data()->set_path("tokens.bin");
  config.mutable_data()->set_validation_split(0.0);
  return config;
}

struct Result {
  std::vector<double> step_seconds;
  double first_step_seconds = 0.0;  ///< from the program's start to the end of the first step
  std::map<std::string, double> phases;
  v1::StepMetrics last;
  double flops_per_second_of_probe = 0.0;
  std::uint64_t late_segments = 0;  ///< system allocations after the first step
  ResidentMemory resident;          ///< of all ranks together, after the last step
  std::size_t states_bytes = 0;     ///< of tensors between two steps
  /// The fullest moment of a step. Two allocators are full at different times: no more than this.
  std::size_t tensor_peak_bytes = 0;
  AllocatorStats memory;
  std::map<std::pair<std::string, std::string>, kernels::KernelProfile> profiles;
};

/// Every rank calls it; none goes on before all have looked, since a page that a peer has let go of
/// is no longer shared.
ResidentMemory memory_of_all_ranks(comm::ProcessGroup& world) {
  const ResidentMemory memory = resident_memory();
  std::int64_t both[] = {memory.rss, memory.pss};
  world.all_reduce(make_view(both, DType::kInt64, {2}), comm::ReduceOp::kSum)->wait_host();
  return {both[0], both[1]};
}

Result measure(const TrainOptions& options, ExecutionContext& context, comm::ProcessGroup& world,
               const v1::RunConfig& config, const fs::path& folder, Clock::time_point start,
               kernels::ProfilingBackend& profiler) {
  train::RunOptions run_options;
  run_options.folders.data_dir = folder;
  test::LocalJob job({&context, &world}, config, run_options);
  Result result;
  const auto step = [&] {
    const auto begin = Clock::now();
    profiler.set_phase("gradients");
    job.forward_backward();
    profiler.set_phase("update");
    result.last = job.optim_step();
    return seconds_since(begin);
  };
  std::vector<std::shared_ptr<Allocator>> allocators{context.options().allocator};
  if (const auto& symmetric = context.options().symmetric_allocator)
    allocators.push_back(symmetric);
  const double first = step();
  result.first_step_seconds = seconds_since(start) - first;
  const std::uint64_t segments = context.allocator().stats().segments_acquired;
  for (std::int64_t i = 1; i < options.warmup; ++i) step();
  profiler.take();
  for (const auto& allocator : allocators) {
    allocator->reset_peak();
    result.states_bytes += allocator->stats().bytes_in_use;
  }
  for (std::int64_t i = 0; i < options.steps; ++i) {
    result.step_seconds.push_back(step());
    for (const auto& [phase, seconds] : job.phase_seconds())
      result.phases[phase] += seconds / static_cast<double>(options.steps);
  }
  result.profiles = profiler.take();
  result.memory = context.allocator().stats();
  for (const auto& allocator : allocators)
    result.tensor_peak_bytes += allocator->stats().peak_bytes_in_use;
  result.late_segments = result.memory.segments_acquired - segments;
  result.resident = memory_of_all_ranks(world);
  // All ranks probe at once, as they compute at once.
  world.barrier()->wait_host();
  double probe = fma_flops_per_second(context.threads());
  if (world.size() > 1)
    world.all_reduce(make_view(&probe, DType::kFloat64, {1}), comm::ReduceOp::kSum)->wait_host();
  result.flops_per_second_of_probe = probe;
  return result;
}

nlohmann::json sent(const v1::StepMetrics& metrics) {
  nlohmann::json all = nlohmann::json::object();
  for (const v1::CollectiveMetrics& item : metrics.collectives())
    all[item.group() + " " + item.collective()] = {{"calls", item.calls()},
                                                   {"bytes", item.bytes_sent()}};
  return all;
}

/// Operations and bytes a second that bound a rank: of the dtype's register probe and of a copy, or
/// of a device's large product in bfloat16 and its copy.
DeviceCeilings profile_bounds(const TrainOptions& options, const ExecutionContext& context,
                              bool in_bfloat16) {
  if (context.device() != kCpuDevice) {
    const bool emulated = options.device == "cuda-emulated";
    DeviceTiming timing(context.device(), emulated ? 0.0 : 0.1);
    return measure_ceilings(timing, emulated);
  }
  const double fma = fma_flops_per_second(context.threads(), 0.2);
  const double dot = bfloat16_flops_per_second(context.threads(), 0.2);
  return {in_bfloat16 ? std::max(fma, dot) : fma,
          copy_bytes_per_second(context.threads(), CopyKind::kNonTemporal)};
}

/// Where a step's seconds go, and the rate of each kernel over its bound: products against
/// operations, all else against bytes.
void print_profile(const TrainOptions& options, const ExecutionContext& context,
                   const v1::RunConfig& config, const Result& result) {
  const auto [probe, copy] = profile_bounds(options, context, config.plan().dtype() == "bfloat16");
  const auto steps = static_cast<double>(options.steps);
  double total = 0.0, kernels = 0.0;
  for (const double seconds : result.step_seconds) total += seconds / steps;
  std::vector<std::pair<std::pair<std::string, std::string>, kernels::KernelProfile>> rows(
      result.profiles.begin(), result.profiles.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  fmt::print(stderr, "a step {:.1f} ms; probe {:.0f} GFLOP/s, copy {:.1f} GB/s\n", total * 1e3,
             probe / 1e9, copy / 1e9);
  fmt::print(stderr, "{:>8} {:>6} {:>6}  {:<7} {:<10} {}\n", "ms", "share", "calls", "of bound",
             "part", "kernel");
  for (const auto& [key, profile] : rows) {
    kernels += profile.seconds / steps;
    const double bound = profile.flops > 0.0 ? profile.flops / probe : profile.bytes / copy;
    fmt::print(stderr, "{:>8.2f} {:>5.1f}% {:>6.1f}  {:<8.2f} {:<10} {}\n",
               profile.seconds / steps * 1e3, 100.0 * profile.seconds / steps / total,
               static_cast<double>(profile.calls) / steps, bound / profile.seconds, key.first,
               key.second);
  }
  fmt::print(stderr, "{:>8.2f} {:>5.1f}%                 outside of kernels\n",
             (total - kernels) * 1e3, 100.0 * (total - kernels) / total);
}

void print(const TrainOptions& options, int threads, int ranks, const v1::RunConfig& config,
           const nn::ModelConfig& model, const Result& result) {
  const double p50 = percentile(result.step_seconds, 0.5);
  const std::int64_t seq = config.training().seq_len();
  const double tokens = static_cast<double>(options.batch * seq);
  const double flops = nn::flops_per_token(model, seq) * tokens / p50;
  const planner::MemoryEstimate estimate = plan::estimate_job_memory(config, model);
  const nlohmann::json line = {
      {"bench", "train"},
      {"model", options.model},
      {"parameters", nn::parameter_count(model)},
      {"device", options.device},
      {"cpu_class", kernels::backend_for(kCpuDevice).describe().compute_class},
      {"ranks", ranks},
      {"mesh", options.mesh},
      {"sequence_parallel", options.sequence_parallel},
      {"fusion", options.fusion},
      {"threads", threads},
      {"dtype", config.plan().dtype()},
      {"seq", seq},
      {"batch", options.batch},
      {"steps", options.steps},
      {"tokens_per_second", tokens / p50},
      {"step_seconds",
       {{"p50", p50}, {"p90", percentile(result.step_seconds, 0.9)}, {"all", result.step_seconds}}},
      {"phase_seconds", result.phases},
      {"seconds_to_first_step_less_step", result.first_step_seconds},
      {"peak_rss_bytes", result.last.memory_bytes()},
      {"rss_bytes_of_all_ranks", result.resident.rss},
      {"pss_bytes_of_all_ranks", result.resident.pss},
      {"states_bytes", result.states_bytes},
      {"tensor_peak_bytes", result.tensor_peak_bytes},
      {"tensor_peak_bytes_estimated", estimate.tensors()},
      {"communication_bytes_estimated", estimate.communication},
      {"allocator_peak_bytes", result.memory.peak_bytes_in_use},
      {"allocator_segment_bytes", result.memory.segment_bytes},
      {"system_allocations_after_first_step", result.late_segments},
      {"model_flops_per_second", flops},
      {"fma_probe_flops_per_second", result.flops_per_second_of_probe},
      {"model_flops_over_fma_probe", flops / result.flops_per_second_of_probe},
      {"sent_by_rank_0_in_a_step", sent(result.last)},
      {"last_loss", result.last.loss()},
      {"last_grad_norm", result.last.grad_norm()}};
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

int run_train_bench(int argc, char** argv) {
  const auto start = Clock::now();
  TrainOptions options;
  CLI::App app("Times training steps on random tokens.", "meshloom-bench train");
  app.add_option("--model", options.model, "preset, or a config.json")->capture_default_str();
  add_device_option(app, options.device);
  app.add_option("--mesh", options.mesh, "dims and sizes, such as dp=2, cp=2 or fsdp=2,tp=2");
  app.add_flag("--sequence-parallel", options.sequence_parallel, "with tp");
  app.add_option("--fusion", options.fusion, "with --sequence-parallel: auto, force or forbid")
      ->capture_default_str();
  app.add_flag("--no-reshard", options.no_reshard,
               "with fsdp: keeps parameters between forward and backward");
  app.add_option("--local-ranks", options.local_ranks, "ranks as processes")->capture_default_str();
  app.add_option("--seq", options.seq, "tokens of a sample; 0: the model's context");
  app.add_option("--batch", options.batch, "samples of a step over all ranks")
      ->capture_default_str();
  app.add_option("--micro-batch", options.micro_batch, "samples of a rank at once; 0: its share");
  app.add_option("--dtype", options.dtype, "float32, bfloat16 or auto")->capture_default_str();
  app.add_option("--steps", options.steps, "timed steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps before")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads,--threads-per-rank", options.threads, "per rank; 0: cores / ranks");
  app.add_option("--dropout", options.dropout, "replaces the model's dropout");
  app.add_option("--activation-checkpoint", options.activation_checkpoint,
                 "none, selective or full");
  app.add_flag(
      "--profile", options.profile,
      "shows on standard error where rank 0 spends a step, on a device by its own events, and "
      "each kernel's rate over its bound");
  CLI11_PARSE(app, argc, argv);

  const int ranks = ranks_of(options);
  const test::TempFolder folder;
  const v1::RunConfig given = make_config(options, folder.path());
  const auto body = [&](comm::RankRuntime& runtime) {
    ExecutionContext::Options context_options;
    context_options.device = open_bench_device(options.device);
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    context_options.threads.count =
        options.threads > 0 ? options.threads : std::max(1, cores / ranks);
    kernels::ProfilingBackend profiler(kernels::backend_for(context_options.device));
    if (options.profile) context_options.backend = &profiler;
    comm::GroupOptions group{.threads = context_options.threads};
    if (context_options.device != kCpuDevice) {
      auto& backend = kernels::backend_for(context_options.device);
      context_options.stream = backend.make_stream(context_options.device);
      group.device = {context_options.device, &backend, context_options.stream};
    }
    const auto world = runtime.make_world_group(group);
    // Peers map memory of the host.
    if (context_options.device == kCpuDevice)
      context_options.symmetric_allocator = comm::make_symmetric_allocator(*world);
    ExecutionContext context(context_options);
    const nn::ModelConfig model = train::load_model_config(given.model(), folder.path());
    const std::int64_t seq = options.seq > 0 ? options.seq : model.max_position_embeddings;
    if (runtime.rank() == 0)
      write_tokens(folder.path() / "tokens.bin", model.vocab_size,
                   seq * options.batch * (options.steps + options.warmup) + 1);
    runtime.bootstrap().barrier();
    const v1::RunConfig config =
        train::resolve_run_config(given, {.world_size = ranks, .data_dir = folder.path()});
    const Result result = measure(options, context, *world, config, folder.path(), start, profiler);
    if (options.profile && runtime.rank() == 0) print_profile(options, context, config, result);
    if (runtime.rank() == 0)
      print(options, context_options.threads.count, ranks, config, model, result);
    runtime.bootstrap().barrier();
    return 0;
  };
  return comm::run_local_ranks(ranks, body);
}

}  // namespace meshloom::bench
