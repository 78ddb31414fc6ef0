// SPDX-License-Identifier: Apache-2.0
// Bootstrap: how ranks find each other before process groups exist. Small host messages only.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace meshloom::comm {

/// Every rank of the world calls each method in the same order, and waits in it for the others.
/// Implemented over MPI, over Unix sockets between forked processes (--local-ranks), and between
/// threads of one process. Throws CommError where a rank is lost, DeadlineExceeded where one does
/// not come in time.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Each rank gives one string of bytes and gets everyone's, in rank order.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  /// Returns the root's string.
  virtual std::string broadcast(const std::string& value, int root) = 0;
  virtual void barrier() = 0;
};

}  // namespace meshloom::comm
