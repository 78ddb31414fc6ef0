// SPDX-License-Identifier: Apache-2.0
// What the commands about jobs share.
#pragma once

#include <google/protobuf/map.h>

#include <string>

#include "daemon/cli/client.h"

namespace meshloom::cli {

/// "KEY=VALUE". Throws CliError (kUsage).
void add_label(const std::string& text, google::protobuf::Map<std::string, std::string>* labels);
/// "a=1,b=2".
std::string labels_text(const google::protobuf::Map<std::string, std::string>& labels);

v1::Job get_job(Client& client, const std::string& name);

/// Prints a job that was changed: its name and state, or all of it as JSON.
ExitCode print_state(bool json, const v1::Job& job);

/// A paused job goes on.
ExitCode resume_paused(Client& client, bool json, const std::string& name);

}  // namespace meshloom::cli
