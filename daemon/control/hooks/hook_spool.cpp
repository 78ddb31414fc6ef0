// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/hooks/hook_spool.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/base/files.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostFailed = 1000;

}  // namespace

HookSpool::HookSpool(std::filesystem::path file, std::int64_t newest)
    : file_(std::move(file)), taken_(newest) {
  std::ifstream in(file_);
  const auto kept = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!kept.is_object() || !kept.contains("taken") || !kept["taken"].is_number_integer()) {
    save();
    return;
  }
  // The log may be another one, such as that of an older copy of the folder.
  taken_ = std::min(kept["taken"].get<std::int64_t>(), newest);
  if (!kept.contains("failed") || !kept["failed"].is_array()) return;
  for (const auto& line : kept["failed"])
    if (line.is_string()) failed_.push_back(line.get<std::string>());
}

void HookSpool::take(std::int64_t revision, const std::string& failed_line) {
  taken_ = revision;
  if (!failed_line.empty()) failed_.push_back(failed_line);
  if (failed_.size() > kMostFailed) {
    spdlog::warn("hooks: {} events have failed, the oldest is dropped: {}", failed_.size(),
                 failed_.front());
    failed_.erase(failed_.begin());
  }
  save();
}

void HookSpool::drop_first_failed() {
  failed_.erase(failed_.begin());
  save();
}

void HookSpool::save() {
  const nlohmann::json kept = {{"taken", taken_}, {"failed", failed_}};
  try {
    base::replace_file(file_, kept.dump() + "\n", 0600, base::Outlives::kProcess);
    in_trouble_ = false;
  } catch (const Error& error) {
    if (!in_trouble_) spdlog::warn("hooks: {}", error.what());
    in_trouble_ = true;
  }
}

void forget_hooks(const std::filesystem::path& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

}  // namespace meshloom::control
