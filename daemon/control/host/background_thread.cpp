// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/background_thread.h"

#include <sys/resource.h>

#include <exception>
#include <thread>

namespace meshloom::control {

void give_way_to_training() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, 0, kNice);
}

void run_in_background(const std::function<void()>& work) {
  std::exception_ptr error;
  std::thread thread([&] {
    give_way_to_training();
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace meshloom::control
