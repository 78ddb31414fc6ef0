// SPDX-License-Identifier: Apache-2.0
// What a daemon can do and how much it takes, out of the tables that the code goes by.
#pragma once

#include <string>

#include "daemon/train/config/device_choice.h"
#include "v1/config.pb.h"
#include "v1/worker_service.pb.h"

namespace meshloom::control {

/// `config` is resolved. The CPUs are those of the ranks, which are not known here.
v1::GetCapabilitiesResponse describe_capabilities(const std::string& version,
                                                  const v1::DaemonConfig& config, int ranks,
                                                  int threads, const train::WorldDevices& devices);

}  // namespace meshloom::control
