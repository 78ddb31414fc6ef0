// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/leave_soon.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "kernels/base/log.h"

namespace meshloom::control {

void leave_soon(const std::string& who) {
  std::thread([who] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    spdlog::critical("{} did not leave its command in time and ends now", who);
    std::_Exit(1);
  }).detach();
}

}  // namespace meshloom::control
