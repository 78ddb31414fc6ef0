// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/flight_dump.h"

#include <algorithm>
#include <mutex>
#include <span>

#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using comm::CollectiveKind;

double seconds_before(comm::Clock::time_point now, comm::Clock::time_point then) {
  return std::chrono::duration<double>(now - then).count();
}

void fill_entry(const comm::FlightEntry& entry, const comm::RankFlight& flight,
                comm::Clock::time_point now, v1::FlightEntry* out) {
  if (const comm::FlightGroup* group = flight.log.group(entry.group)) out->set_group(group->name);
  out->set_sequence(static_cast<std::int64_t>(entry.sequence));
  out->set_number(entry.number);
  out->set_kind(comm::kind_name(entry.kind));
  if (entry.kind != CollectiveKind::kBarrier) out->set_dtype(dtype_name(entry.dtype));
  if (entry.kind == CollectiveKind::kAllReduce || entry.kind == CollectiveKind::kReduceScatter)
    out->set_reduction(comm::reduce_op_name(entry.op));
  out->set_root(entry.root);
  out->set_bytes(static_cast<std::int64_t>(entry.bytes));
  out->set_elements(entry.elements);
  out->set_state(comm::to_string(entry.state));
  out->set_issued_seconds(seconds_before(now, entry.issued));
  out->set_changed_seconds(seconds_before(now, entry.changed));
}

void fill_open(const comm::OpenCollective& open, v1::OpenCollective* out) {
  const auto fill = [](const std::vector<int>& ranks, auto* to) {
    to->Add(ranks.begin(), ranks.end());
  };
  out->set_group(open.group);
  out->set_number(open.number);
  out->set_what(open.what);
  fill(open.waiting, out->mutable_waiting());
  fill(open.done, out->mutable_done());
  fill(open.missing, out->mutable_missing());
  fill(open.unknown, out->mutable_unknown());
  fill(open.differing, out->mutable_differing());
  for (const std::string& one : open.differences) out->add_differences(one);
  fill(open.stopped, out->mutable_stopped());
  fill(open.roots, out->mutable_roots());
  out->set_root_cause(open.root_cause);
}

/// What a flight file holds already, shortened.
std::string earlier_dumps(const std::filesystem::path& path) {
  constexpr std::uint64_t kMostKept = 1 << 20;
  if (!std::filesystem::exists(path)) return {};
  const base::InputFile file(path, base::InputFile::Links::kRefuse);
  std::string text(static_cast<std::size_t>(std::min(file.size(), kMostKept)), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return "\n" + text;
}

}  // namespace

void fill_flight_dump(comm::FlightReport report, const std::vector<std::string>& hosts,
                      std::size_t entries, v1::DumpFlightResponse* response) {
  for (comm::RankFlight& flight : report.ranks) {
    const std::string& host = hosts[static_cast<std::size_t>(flight.rank)];
    if (!flight.unreadable.empty())
      flight.unreadable =
          fmt::format("it is on host {}: {}", host.empty() ? "?" : host, flight.unreadable);
    v1::RankFlight* out = response->add_ranks();
    out->set_rank(flight.rank);
    out->set_host(host);
    out->set_pid(flight.log.pid);
    out->set_process(comm::to_string(flight.process));
    out->set_unreadable(flight.unreadable);
    const std::size_t count = std::min(entries, flight.log.entries.size());
    for (std::size_t i = flight.log.entries.size() - count; i < flight.log.entries.size(); ++i)
      fill_entry(flight.log.entries[i], flight, report.when, out->add_entries());
  }
  for (const comm::OpenCollective& open : report.open) fill_open(open, response->add_open());
  if (report.abort) response->set_abort_record(report.abort->text);
  response->set_text(comm::to_text(report, entries));
}

void write_flight_file(const comm::FlightField& flight, const std::filesystem::path& path,
                       const std::string& cause) {
  constexpr std::size_t kEntries = 64;  // of each rank
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  try {
    base::replace_file(
        path,
        fmt::format("{}: {}\n{}{}", base::now_rfc3339(), cause,
                    comm::to_text(comm::read_flight_report(flight), kEntries), earlier_dumps(path)),
        0600, base::Outlives::kProcess);  // the launcher kills this rank in a second
    spdlog::critical("{}; the collectives of all ranks are in {}", cause, path.string());
  } catch (const Error& error) {
    spdlog::critical("{}; the collectives of all ranks could not be written: {}", cause,
                     error.what());
  }
}

}  // namespace meshloom::control
