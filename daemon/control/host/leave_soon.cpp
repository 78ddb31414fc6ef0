// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/leave_soon.h"

#include <cstdlib>
#include <thread>

#include "kernels/base/log.h"

namespace meshloom::control {

void leave_after(const std::string& what, std::chrono::milliseconds time) {
  std::thread([what, time] {
    std::this_thread::sleep_for(time);
    spdlog::critical("{} was not done in {} s: this process ends now", what,
                     std::chrono::duration<double>(time).count());
    std::_Exit(1);
  }).detach();
}

void leave_soon(const std::string& who) {
  leave_after(who + " leaving its command", std::chrono::seconds(10));
}

}  // namespace meshloom::control
