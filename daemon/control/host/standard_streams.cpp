// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/standard_streams.h"

#include <signal.h>

#include "daemon/base/standard_streams.h"

namespace meshloom::control {

void keep_standard_streams() {
  base::open_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace meshloom::control
