// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/config.h"

#include "daemon/base/input_file.h"
#include "kernels/base/error.h"

namespace meshloom::base {

JobFile load_job_file(const std::filesystem::path& path) {
  JobFile file;
  file.lines = read_yaml_file(path, &file.spec);
  if (!file.spec.has_run())
    throw InvalidArgument(
        fmt::format("{}: has no \"run\", which says what to train", path.string()),
        "CONFIG_INVALID", {{"file", path.string()}, {"field", "run"}});
  return file;
}

v1::DaemonConfig load_daemon_config(const std::filesystem::path& path) {
  v1::DaemonConfig config;
  const YamlLimits limits;
  read_yaml(InputFile(path).read_text(limits.bytes), path.string(), &config, limits);
  return config;
}

}  // namespace meshloom::base
