// SPDX-License-Identifier: Apache-2.0
// The commands about jobs share these functions.
#pragma once

#include <google/protobuf/map.h>

#include <string>

#include "daemon/cli/client.h"

namespace meshloom::cli {

/// Adds a label that is written "KEY=VALUE". Throws CliError (kUsage).
void add_label(const std::string& text, google::protobuf::Map<std::string, std::string>* labels);
/// Returns "a=1,b=2".
std::string labels_text(const google::protobuf::Map<std::string, std::string>& labels);

v1::Job get_job(Client& client, const std::string& name);

/// Prints a job that was changed: its name and state, or all of it as JSON.
ExitCode print_state(bool json, const v1::Job& job);

/// Lets a paused job go on.
ExitCode resume_paused(Client& client, bool json, const std::string& name);

}  // namespace meshloom::cli
