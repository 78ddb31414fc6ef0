// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/peak_flops.h"

#include <nlohmann/json.hpp>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::base {
namespace {

constexpr const char* kName = "peak_flops.json";

}  // namespace

void write_peak_flops(const std::filesystem::path& state_dir, const PeakFlops& peak) {
  const nlohmann::ordered_json json = {{"compute_class", peak.compute_class},
                                       {"threads", peak.threads},
                                       {"float32", peak.float32},
                                       {"bfloat16", peak.bfloat16}};
  replace_file(state_dir / kName, json.dump(2) + "\n");
}

std::optional<PeakFlops> read_peak_flops(const std::filesystem::path& state_dir,
                                         const std::string& compute_class, int threads) {
  constexpr std::uint64_t kMostBytes = 4096;
  const std::filesystem::path file = state_dir / kName;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(InputFile(file).read_text(kMostBytes));
    const PeakFlops peak{json.at("compute_class").get<std::string>(), json.at("threads").get<int>(),
                         json.at("float32").get<double>(), json.at("bfloat16").get<double>()};
    if (peak.compute_class == compute_class && peak.threads == threads) return peak;
  } catch (const std::exception& wrong) {
    spdlog::warn("{} is not used: {}", file.string(), wrong.what());
  }
  return std::nullopt;
}

}  // namespace meshloom::base
