// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/config.h"

#include "daemon/base/input_file.h"
#include "kernels/base/error.h"

namespace meshloom::base {

namespace {

JobFile checked(JobFile file, const std::string& name) {
  if (!file.spec.has_run())
    throw InvalidArgument(fmt::format("{}: has no \"run\", which says what to train", name),
                          "CONFIG_INVALID", {{"file", name}, {"field", "run"}});
  return file;
}

}  // namespace

JobFile load_job_file(const std::filesystem::path& path) {
  JobFile file;
  file.lines = read_yaml_file(path, &file.spec);
  return checked(std::move(file), path.string());
}

JobFile parse_job_file(const std::string& text, const std::string& name) {
  JobFile file;
  file.lines = read_yaml(text, name, &file.spec);
  return checked(std::move(file), name);
}

v1::DaemonConfig parse_daemon_config(const std::string& text, const std::string& name) {
  v1::DaemonConfig config;
  read_yaml(text, name, &config, YamlLimits());
  return config;
}

}  // namespace meshloom::base
