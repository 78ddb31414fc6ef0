// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <vector>

namespace meshloom {

void init_log(const LogOptions& options) {
  constexpr std::size_t kMaxBytes = 10u << 20;
  constexpr std::size_t kMaxFiles = 3;
  std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  if (!options.file.empty())
    sinks.push_back(
        std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file, kMaxBytes, kMaxFiles));
  auto logger = std::make_shared<spdlog::logger>("meshloom", sinks.begin(), sinks.end());
  logger->set_pattern(fmt::format("%Y-%m-%dT%H:%M:%S.%e [rank {}] %^%l%$ %v", options.rank));
  logger->set_level(spdlog::level::from_str(options.level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace meshloom
