// SPDX-License-Identifier: Apache-2.0
// LossOptions tell `meshloom run forward-backward` and `forward` the samples and their loss.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "v1/step.pb.h"

namespace meshloom::cli {

struct LossOptions {
  std::string batch_file;  ///< a LossBatch as JSON, here; or else
  std::string data;        ///< a path below the daemon's data dir, and its samples:
  std::int64_t samples = 1, first_sample = 0, epoch = 0;
  std::optional<std::int64_t> seq_len;
  bool document_mask = false;

  // Values that are given stand in the place of what the file has.
  std::string loss, reduction;
  std::vector<std::string> loss_config;  ///< KEY=VALUE
  std::optional<std::int64_t> tokens;
  std::optional<std::int32_t> micro_batch_size;

  /// Reads the file, if there is one. Throws CliError (kUsage) for what is no batch.
  v1::LossBatch batch() const;
};

/// Adds the options, which fill `options`, which outlives the parser.
void add_loss_options(CLI::App& command, LossOptions& options);

}  // namespace meshloom::cli
