// SPDX-License-Identifier: Apache-2.0
// Times every kernel that a device's library has for the products of training steps, and writes the
// table of the fastest: a source file, which the backend is compiled with.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/product_choices.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_device.h"
#include "tests/bench/device_timing.h"

namespace meshloom::bench {
namespace {

/// A kernel takes the place of the first one where it is faster by more than clocks swing.
constexpr double kLeastGain = 0.98;

struct Choice {
  int kernels = 0, fastest = 0;
  double seconds = 0.0, seconds_of_first = 0.0;
  std::string entry;  ///< empty where the library's first guess stays
};

Choice choose(DeviceTiming& timing, kernels::ProductChoices& choices, const DeviceProduct& p) {
  DeviceTensors tensors(timing);
  const auto [y, a, b, options] = make_product(tensors, p);
  Choice best;
  best.kernels = choices.count_choices(y, a, b, options);
  for (int kernel = 0; kernel < best.kernels; ++kernel) {
    const double seconds =
        timing.seconds_of([&] { choices.matmul_by(kernel, timing.context(), y, a, b, options); });
    if (kernel == 0) best.seconds_of_first = best.seconds = seconds;
    if (kernel == 0 || seconds >= best.seconds) continue;
    best.seconds = seconds;
    best.fastest = kernel;
  }
  if (best.seconds < kLeastGain * best.seconds_of_first)
    best.entry = choices.choice_entry(best.fastest, y, a, b, options);
  return best;
}

void print(const DeviceProduct& p, const Choice& choice) {
  const nlohmann::json line = {{"bench", "tune"},
                               {"name", p.name},
                               {"kernels", choice.kernels},
                               {"fastest", choice.fastest},
                               {"tflops", operations_of(p) / choice.seconds / 1e12},
                               {"gain", choice.seconds_of_first / choice.seconds},
                               {"taken", !choice.entry.empty()}};
  fmt::print("{}\n", line.dump());
}

}  // namespace

int run_tune_bench(int argc, char** argv) {
  std::string device = "cuda", file;
  bool tiny = false;
  double seconds = 0.1;
  CLI::App app{
      "Times every kernel that a GPU's library has for the products of training steps, and writes "
      "the table of the fastest, which the backend is compiled with",
      "tune"};
  add_device_option(app, device);
  app.add_option("--output", file, "Where the table goes; by default nothing is written");
  app.add_flag("--tiny", tiny, "Shapes that an emulated device can do");
  app.add_option("--seconds", seconds, "Time per kernel")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  DeviceTiming timing(open_bench_device(device), tiny ? 0.0 : seconds);
  auto* const choices = dynamic_cast<kernels::ProductChoices*>(&timing.backend());
  if (choices == nullptr)
    throw InvalidArgument(fmt::format(
        "--device is \"{}\", which chooses by no table that is tuned, expected cuda", device));
  std::vector<std::string> entries;
  for (const DeviceProduct& product : step_products(tiny)) {
    const Choice choice = choose(timing, *choices, product);
    print(product, choice);
    if (!choice.entry.empty()) entries.push_back(choice.entry);
  }
  if (!file.empty()) {
    std::ofstream table(file);
    table << choices->choice_table(entries);
    check(table.good(), "{} cannot be written", file);
  }
  fmt::print("{} of {} products take another kernel than the library's first{}\n", entries.size(),
             step_products(tiny).size(),
             file.empty() ? "" : fmt::format("; {} is the next {}", file, choices->choice_file()));
  return 0;
}

}  // namespace meshloom::bench
