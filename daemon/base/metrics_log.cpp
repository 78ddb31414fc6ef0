// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/metrics_log.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/goodput.h"
#include "daemon/base/system_message.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::base {
namespace {

using Json = nlohmann::ordered_json;

/// Sets a number of a line; JSON has none that are not finite.
void put_number(Json& line, const std::string& key, double value) {
  line[key] = std::isfinite(value) ? Json(value) : Json(nullptr);
  if (std::isfinite(value)) return;
  const std::string known = line.value("not_finite", "");
  line["not_finite"] = fmt::format("{}{}{}={}", known, known.empty() ? "" : ",", key,
                                   std::isnan(value) ? "nan"
                                   : value > 0       ? "inf"
                                                     : "-inf");
}

/// Sets the bits a byte of a step, a validation or a set; null where the bytes are not known.
template <typename Metrics>
void put_bits(Json& line, const std::string& key, const Metrics& metrics) {
  if (metrics.has_bits_per_byte())
    put_number(line, key, metrics.bits_per_byte());
  else
    line[key] = nullptr;
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

Json MetricsLog::step(const v1::StepMetrics& metrics,
                      const std::map<std::string, double>& seconds) {
  Json line = line_of(metrics.step());
  put_number(line, "loss", metrics.loss());
  put_bits(line, "bits_per_byte", metrics);
  put_number(line, "grad_norm", metrics.grad_norm());
  put_number(line, "lr", metrics.lr());
  put_number(line, "tokens_per_second", metrics.tokens_per_second());
  if (metrics.has_mfu())
    put_number(line, "mfu", metrics.mfu());
  else
    line["mfu"] = nullptr;
  line["tokens"] = metrics.tokens();
  line["memory_bytes"] = metrics.memory_bytes();
  for (const auto& [phase, value] : seconds) put_number(line, "seconds_" + phase, value);
  if (metrics.has_goodput()) put_goodput(metrics.goodput(), &line);
  return write(std::move(line));
}

void MetricsLog::put_goodput(const v1::Goodput& goodput, Json* line) {
  put_number(*line, "goodput", productive_share(goodput));
  for (const auto& [cause, seconds] : lost_seconds(goodput)) {
    double& told = lost_[cause];
    if (told == seconds) continue;
    told = seconds;
    put_number(*line, "lost_seconds_" + cause, seconds);
  }
}

Json MetricsLog::validation(const v1::ValidationMetrics& metrics) {
  Json line = line_of(metrics.step());
  put_number(line, "validation_loss", metrics.loss());
  put_number(line, "perplexity", std::exp(metrics.loss()));
  put_bits(line, "validation_bits_per_byte", metrics);
  for (const v1::SetLoss& set : metrics.sets()) {
    put_number(line, "validation_loss_" + set.set(), set.loss());
    put_number(line, "perplexity_" + set.set(), std::exp(set.loss()));
    put_bits(line, "validation_bits_per_byte_" + set.set(), set);
  }
  last_validation_ = metrics.step();
  return write(std::move(line));
}

Json MetricsLog::write(Json line) {
  const std::int64_t lost = file_->lost();
  if (lost > 0) line["lost_lines"] = lost;
  if (!file_->append(line.dump() + "\n")) {
    if (lost == 0)
      spdlog::warn("metrics are not written to {}: {}", file_->path().string(),
                   system_message(file_->error()));
  } else if (lost > 0) {
    spdlog::warn("metrics are written to {} again: {} lines are missing", file_->path().string(),
                 lost);
  }
  return line;
}

}  // namespace meshloom::base
