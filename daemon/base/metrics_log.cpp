// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/metrics_log.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/system_message.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::base {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Returns the bits a byte of a step, a validation or a set; null where the bytes are not known.
template <typename Metrics>
Json bits_of(const Metrics& metrics) {
  return metrics.has_bits_per_byte() ? number(metrics.bits_per_byte()) : Json(nullptr);
}

struct Kept {
  std::vector<std::string> lines;     ///< the complete ones of steps up to a last one
  bool all = true;                    ///< there is nothing else in the file
  std::int64_t last_validation = -1;  ///< of the job itself
};

Kept lines_to_keep(const std::filesystem::path& path, std::int64_t last_step,
                   const std::string& job) {
  Kept kept;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!file.eof() && entry.is_object() && entry.value("step", last_step + 1) <= last_step) {
      kept.lines.push_back(line);
      // What another job has validated says nothing of this one's data.
      if (entry.contains("validation_loss") && entry.value("job", job) == job)
        kept.last_validation = entry["step"];
    } else {
      kept.all = false;
    }
  }
  return kept;
}

void write_lines(const std::filesystem::path& path, const std::vector<std::string>& lines) try {
  ReplacementFile next(path, 0644);
  for (const std::string& line : lines) next.write(line + "\n");
  next.commit();
} catch (const Error& error) {
  spdlog::warn("metrics of steps to come stay in {}: {}", path.string(), error.what());
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& file, std::int64_t last_step,
                       MetricsOrigin origin)
    : origin_(std::move(origin)) {
  std::error_code error;
  const bool inherits = !origin_.before.empty() && !std::filesystem::exists(file, error);
  const Kept kept = lines_to_keep(inherits ? origin_.before : file, last_step, origin_.job);
  if (inherits ? !kept.lines.empty() : !kept.all) write_lines(file, kept.lines);
  last_validation_ = kept.last_validation;
  file_.emplace(file);
}

Json MetricsLog::line_of(std::int64_t step) const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  Json line;
  line["step"] = step;
  line["time"] = now_rfc3339_with_milliseconds();
  line["elapsed"] = std::round(1e3 * (origin_.ran_seconds + passed.count())) / 1e3;
  line["job"] = origin_.job;
  line["attempt"] = origin_.attempt;
  return line;
}

void MetricsLog::step(const v1::StepMetrics& metrics,
                      const std::map<std::string, double>& seconds) {
  Json line = line_of(metrics.step());
  line["loss"] = number(metrics.loss());
  line["bits_per_byte"] = bits_of(metrics);
  line["grad_norm"] = number(metrics.grad_norm());
  line["lr"] = number(metrics.lr());
  line["tokens_per_second"] = number(metrics.tokens_per_second());
  line["mfu"] = metrics.has_mfu() ? number(metrics.mfu()) : Json(nullptr);
  line["tokens"] = metrics.tokens();
  line["memory_bytes"] = metrics.memory_bytes();
  for (const auto& [phase, value] : seconds) line["seconds_" + phase] = number(value);
  write(std::move(line));
}

void MetricsLog::validation(const v1::ValidationMetrics& metrics) {
  Json line = line_of(metrics.step());
  line["validation_loss"] = number(metrics.loss());
  line["perplexity"] = number(std::exp(metrics.loss()));
  line["validation_bits_per_byte"] = bits_of(metrics);
  for (const v1::SetLoss& set : metrics.sets()) {
    line["validation_loss_" + set.set()] = number(set.loss());
    line["perplexity_" + set.set()] = number(std::exp(set.loss()));
    line["validation_bits_per_byte_" + set.set()] = bits_of(set);
  }
  last_validation_ = metrics.step();
  write(std::move(line));
}

void MetricsLog::write(Json line) {
  const std::int64_t lost = file_->lost();
  if (lost > 0) line["lost_lines"] = lost;
  if (!file_->append(line.dump() + "\n")) {
    if (lost == 0)
      spdlog::warn("metrics are not written to {}: {}", file_->path().string(),
                   system_message(file_->error()));
    return;
  }
  if (lost > 0)
    spdlog::warn("metrics are written to {} again: {} lines are missing", file_->path().string(),
                 lost);
}

}  // namespace meshloom::base
