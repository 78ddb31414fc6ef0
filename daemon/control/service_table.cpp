// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/service_table.h"

#include <ranges>

namespace meshloom::control {

ServiceTable::~ServiceTable() {
  while (!made_.empty()) made_.pop_back();
}

void ServiceTable::stop_row(Row& row) {
  if (row.stopped) return;
  row.stopped = true;
  row.service->stop();
}

void ServiceTable::start() {
  const std::lock_guard lock(mutex_);
  std::vector<Row*> started;
  for (Row& row : rows_) {
    if (row.stopped) continue;
    try {
      row.service->start();
    } catch (...) {
      for (Row* before : std::views::reverse(started)) before->service->request_stop();
      for (Row* before : std::views::reverse(started)) stop_row(*before);
      throw;
    }
    started.push_back(&row);
  }
}

void ServiceTable::request_stop() {
  for (const Row& row : std::views::reverse(rows_)) row.service->request_stop();
}

void ServiceTable::stop_through(const DaemonService& last) {
  const std::lock_guard lock(mutex_);
  for (Row& row : std::views::reverse(rows_)) {
    stop_row(row);
    if (row.service == &last) return;
  }
}

void ServiceTable::stop() {
  const std::lock_guard lock(mutex_);
  for (Row& row : std::views::reverse(rows_)) stop_row(row);
}

}  // namespace meshloom::control
