// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/env.h"

#include <charconv>
#include <cstdlib>

#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

}  // namespace

Environment read_environment() {
  Environment env;
  env.address = text("MESHLOOM_ADDRESS");
  env.state_dir = text("MESHLOOM_STATE_DIR");
  env.data_dir = text("MESHLOOM_DATA_DIR");
  if (const auto threads = text("MESHLOOM_THREADS")) {
    int number = 0;
    const auto [rest, error] =
        std::from_chars(threads->data(), threads->data() + threads->size(), number);
    check(error == std::errc() && *rest == '\0' && number > 0,
          "environment variable MESHLOOM_THREADS is \"{}\", expected a positive whole number",
          *threads);
    env.threads = number;
  }
  env.log_level = text("MESHLOOM_LOG_LEVEL");
  env.host = text("MESHLOOM_HOST");
  env.run_token = text("MESHLOOM_RUN_TOKEN");
  env.token_file = text("MESHLOOM_TOKEN_FILE");
  env.ca = text("MESHLOOM_CA");
  env.cert = text("MESHLOOM_CERT");
  env.key = text("MESHLOOM_KEY");
  env.home = text("HOME");
  env.config_home = text("XDG_CONFIG_HOME");
  env.no_colour = text("NO_COLOR").has_value() || text("TERM") == "dumb";
  return env;
}

int launched_rank() {
  const auto value = text("PMIX_RANK");
  int rank = 0;
  if (value) std::from_chars(value->data(), value->data() + value->size(), rank);
  return rank;
}

}  // namespace meshloom::base
