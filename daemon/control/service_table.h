// SPDX-License-Identifier: Apache-2.0
// ServiceTable: the one list of what a daemon starts and stops.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/control/host/daemon_service.h"

namespace meshloom::control {

/// Services are started in the order in which they were added, and asked to stop and stopped in the
/// opposite one. Services are added before any other call, by one thread; after that any thread may
/// call any method, and start() and the two that stop wait for each other.
class ServiceTable {
 public:
  ServiceTable() = default;
  /// Destroys the services that it has made, the last one first. Whoever has others in the list
  /// calls stop() as long as they exist.
  ~ServiceTable();
  ServiceTable(const ServiceTable&) = delete;
  ServiceTable& operator=(const ServiceTable&) = delete;

  /// Makes a service, which lives as long as the table, and adds it.
  template <typename T, typename... Arguments>
  T& make(Arguments&&... arguments);
  /// Adds a service of somebody else.
  void add(DaemonService& service) { rows_.push_back({&service}); }

  /// Starts those that are not stopped. If one throws, those that were started before it are asked
  /// to stop and stopped, and this throws the same.
  void start();
  /// Does not wait.
  void request_stop();
  /// Stops the services behind `last` and then `last`, each once, whoever calls.
  void stop_through(const DaemonService& last);
  /// Stops all of them.
  void stop();

 private:
  struct Row {
    DaemonService* service = nullptr;
    bool stopped = false;
  };

  static void stop_row(Row& row);

  std::vector<std::unique_ptr<DaemonService>> made_;
  std::mutex mutex_;  ///< while services are started or stopped
  std::vector<Row> rows_;
};

template <typename T, typename... Arguments>
T& ServiceTable::make(Arguments&&... arguments) {
  auto service = std::make_unique<T>(std::forward<Arguments>(arguments)...);
  T& made = *service;
  made_.push_back(std::move(service));
  add(made);
  return made;
}

}  // namespace meshloom::control
