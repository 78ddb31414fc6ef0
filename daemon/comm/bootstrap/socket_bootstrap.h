// SPDX-License-Identifier: Apache-2.0
// Bootstrap over stream sockets: every rank has one to rank 0, which passes everything on.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "daemon/comm/bootstrap/bootstrap.h"

namespace meshloom::comm {

/// Makes a bootstrap over sockets. `sockets`: on rank 0 one for each rank (the first is not used),
/// elsewhere one to rank 0. Takes them over. Throws CommError naming the rank whose end was closed,
/// DeadlineExceeded if nothing came in time.
std::unique_ptr<Bootstrap> make_socket_bootstrap(int rank, int world_size, std::vector<int> sockets,
                                                 std::chrono::milliseconds timeout);

}  // namespace meshloom::comm
