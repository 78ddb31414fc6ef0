// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/nn/models/presets.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "kernels/base/error.h"
#include "tests/bench/bench.h"
#include "tests/support/temp_folder.h"

namespace meshloom::bench {
namespace {

namespace fs = std::filesystem;

struct CheckpointOptions {
  std::string model = "gpt2_124m";
  std::string folder;
  int local_ranks = 1;
  int repeats = 3;
};

/// Weights and two moments of about the model's size, in tensors like its own.
std::vector<train::StateTensor> make_state(ExecutionContext& context,
                                           const nn::ModelConfig& model) {
  std::vector<train::StateTensor> state;
  std::int64_t left = nn::parameter_count(model);
  for (int i = 0; left > 0; ++i) {
    const std::int64_t rows =
        std::min(left / model.hidden_size, i == 0 ? model.vocab_size : 4 * model.hidden_size);
    const Shape shape = rows > 0 ? Shape{rows, model.hidden_size} : Shape{left};
    left -= numel(shape);
    for (const char* kind : {"model.", "optimizer.moment1.", "optimizer.moment2."})
      state.push_back({kind + std::string("tensor_") + std::to_string(i),
                       full(context, shape, 0.001 * i, DType::kFloat32)});
  }
  return state;
}

void write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0) throw IoError(fmt::format("raw write: {}", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

/// The same bytes by plain writes and one fsync: this rank's share into one file.
double raw_write(const fs::path& folder, std::span<const train::StateTensor> state,
                 comm::ProcessGroup& world) {
  const fs::path path = folder / ("raw-" + std::to_string(world.rank()));
  world.barrier()->wait_host();
  const auto start = Clock::now();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  for (const train::StateTensor& item : state) {
    const TensorView view = item.tensor.view();
    const std::span bytes(static_cast<const std::byte*>(view.data), view.bytes());
    const std::size_t share = bytes.size() / static_cast<std::size_t>(world.size());
    write_all(file, bytes.subspan(static_cast<std::size_t>(world.rank()) * share, share));
  }
  if (::fsync(file) != 0 || ::close(file) != 0)
    throw IoError(fmt::format("raw write: {}", std::strerror(errno)));
  world.barrier()->wait_host();
  const double seconds = seconds_since(start);
  fs::remove(path);
  return seconds;
}

int measure(const CheckpointOptions& options, comm::RankRuntime& runtime, const fs::path& folder) {
  ExecutionContext context;
  const auto world = runtime.make_world_group();
  const auto state = make_state(context, nn::preset_config(options.model));
  std::size_t bytes = 0;
  for (const auto& item : state) bytes += item.tensor.view().bytes();
  const train::CheckpointLocation location = {folder / "checkpoints", 1, {}, nullptr};
  std::vector<double> raw, save, load;
  // The first round is not counted: it gives the page cache its memory.
  for (int i = 0; i <= options.repeats; ++i) {
    if (i == 1) {
      raw.clear();
      save.clear();
      load.clear();
    }
    raw.push_back(raw_write(folder, state, *world));
    train::Manifest manifest;
    manifest.step = i;
    manifest.model_config = manifest.run_config = "{}";
    world->barrier()->wait_host();
    auto start = Clock::now();
    train::write_checkpoint(*world, location, manifest, state);
    save.push_back(seconds_since(start));
    start = Clock::now();
    const auto found = train::find_checkpoint(*world, location, false);
    const train::CheckpointReader reader(found->folder, found->manifest);
    for (const auto& item : state) reader.read(item.name, item.tensor);
    load.push_back(seconds_since(start));
  }
  if (runtime.rank() == 0) {
    // The best of each: a disk that others use only ever adds.
    const double raw_seconds = *std::min_element(raw.begin(), raw.end());
    const double save_seconds = *std::min_element(save.begin(), save.end());
    const nlohmann::json line = {{"bench", "checkpoint"},
                                 {"ranks", world->size()},
                                 {"bytes", bytes},
                                 {"raw_write_seconds", raw_seconds},
                                 {"save_seconds", save_seconds},
                                 {"save_over_raw_write", save_seconds / raw_seconds},
                                 {"load_seconds", *std::min_element(load.begin(), load.end())},
                                 {"all_raw_write_seconds", raw},
                                 {"all_save_seconds", save}};
    std::printf("%s\n", line.dump().c_str());
  }
  runtime.bootstrap().barrier();
  return 0;
}

}  // namespace

int run_checkpoint_bench(int argc, char** argv) {
  CheckpointOptions options;
  CLI::App app("Times saving and loading a checkpoint against a raw write of the same bytes.",
               "meshloom-bench checkpoint");
  app.add_option("--model", options.model, "preset that gives the size")->capture_default_str();
  app.add_option("--folder", options.folder,
                 "an existing folder on the disk to measure; default: the temporary folder");
  app.add_option("--local-ranks", options.local_ranks, "ranks as processes")->capture_default_str();
  app.add_option("--repeats", options.repeats, "the best of so many is given")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const test::TempFolder temporary(options.folder.empty() ? fs::temp_directory_path()
                                                          : fs::path(options.folder));
  return comm::run_local_ranks(options.local_ranks, [&](comm::RankRuntime& runtime) {
    return measure(options, runtime, temporary.path());
  });
}

}  // namespace meshloom::bench
