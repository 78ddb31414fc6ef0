// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/service_table.h"

#include <ranges>
#include <span>

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
  std::size_t next = 0;
  try {
    for (; next < rows_.size(); ++next)
      if (!rows_[next].stopped) rows_[next].service->start();
  } catch (...) {
    const std::span<Row> started = std::span(rows_).first(next);
    for (const Row& row : std::views::reverse(started))
      if (!row.stopped) row.service->request_stop();
    for (Row& row : std::views::reverse(started)) stop_row(row);
    throw;
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
