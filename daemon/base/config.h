// SPDX-License-Identifier: Apache-2.0
// The two kinds of config files: a job and a daemon.
#pragma once

#include <filesystem>

#include "daemon/base/yaml_reader.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::base {

struct JobFile {
  v1::JobSpec spec;
  SourceLines lines;  ///< to show where a field stands that the server refuses
};

/// Checks spelling and types; values are checked by the server, which knows the ranks and the data.
JobFile load_job_file(const std::filesystem::path& path);
/// Reads the text of a job file as load_job_file does; `name` is the file as the user knows it.
JobFile parse_job_file(const std::string& text, const std::string& name);

/// Reads a daemon's config from the text of its file; `name` is the file as the user knows it.
/// Throws as read_yaml.
v1::DaemonConfig parse_daemon_config(const std::string& text, const std::string& name);

}  // namespace meshloom::base
