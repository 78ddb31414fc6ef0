// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/diagnosis/diagnosis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace meshloom::comm {
namespace {

bool holds(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string name_of(const FlightGroup* group) { return group == nullptr ? "(ended)" : group->name; }

std::string seconds_before(Clock::time_point now, Clock::time_point then) {
  return fmt::format("{:.3f} s ago", std::chrono::duration<double>(now - then).count());
}

bool same_call(const FlightEntry& a, const FlightEntry& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.elements == b.elements;
}

/// Whether an entry is waited in: it is open, or was given up for the abort record of its group and
/// nothing came after it.
bool waits(const FlightReport& report, const FlightSnapshot& log, const FlightGroup& group,
           const FlightEntry& entry) {
  if (entry.open()) return true;
  if (entry.state != FlightState::kFailed || !report.abort || report.abort->group_id != group.id)
    return false;
  return std::none_of(log.entries.begin(), log.entries.end(),
                      [&](const FlightEntry& other) { return other.issued > entry.changed; });
}

/// What a member of the group has done about the collective of `first`.
void place(OpenCollective& open, const RankFlight& flight, const FlightEntry& first,
           Clock::time_point now) {
  if (!flight.unreadable.empty()) return open.unknown.push_back(flight.rank);
  const FlightGroup* group = nullptr;
  for (const FlightGroup& one : flight.log.groups)
    if (one.id == open.group_id) group = &one;
  if (group == nullptr) return open.missing.push_back(flight.rank);
  std::int64_t newest = -1;
  for (const FlightEntry& entry : flight.log.entries) {
    if (entry.group != group->number || entry.number < 0) continue;
    newest = std::max(newest, entry.number);
    if (entry.number != open.number) continue;
    if (!same_call(entry, first)) {
      open.differing.push_back(flight.rank);
      open.differences.push_back(fmt::format("rank {} is in {}, {} {}", flight.rank,
                                             describe(entry, group->name), to_string(entry.state),
                                             seconds_before(now, entry.changed)));
    } else if (entry.state == FlightState::kDone) {
      open.done.push_back(flight.rank);
    } else {
      open.waiting.push_back(flight.rank);
      if (flight.stands()) open.stopped.push_back(flight.rank);
    }
    return;
  }
  // An older one than its log goes back was done.
  (newest > open.number ? open.done : open.missing).push_back(flight.rank);
}

/// Whether the peer of a message has an open one for `rank` the other way. Which of several it is
/// cannot be told by numbers.
bool answers(const RankFlight& peer, const FlightGroup& group, const FlightEntry& message,
             int rank) {
  const CollectiveKind other =
      message.kind == CollectiveKind::kSend ? CollectiveKind::kRecv : CollectiveKind::kSend;
  for (const FlightEntry& entry : peer.log.entries) {
    const FlightGroup* its = peer.log.group(entry.group);
    if (entry.open() && entry.kind == other && its != nullptr && its->id == group.id &&
        entry.root >= 0 && static_cast<std::size_t>(entry.root) < group.members.size() &&
        group.members[static_cast<std::size_t>(entry.root)] == rank)
      return true;
  }
  return false;
}

OpenCollective examine(const FlightReport& report, const FlightGroup& group,
                       const FlightEntry& entry, int rank) {
  OpenCollective open;
  open.group = group.name;
  open.group_id = group.id;
  open.number = entry.number;
  open.what = describe(entry, group.name);
  if (entry.number < 0) {
    open.waiting = {rank};
    const auto peer = static_cast<std::size_t>(entry.root);
    if (entry.root >= 0 && peer < group.members.size()) {
      const RankFlight& flight = report.ranks[static_cast<std::size_t>(group.members[peer])];
      auto& ranks = !flight.unreadable.empty()            ? open.unknown
                    : answers(flight, group, entry, rank) ? open.waiting
                                                          : open.missing;
      ranks.push_back(flight.rank);
    }
    return open;
  }
  if (group.members.empty()) open.waiting = {rank};  // they were too many to be recorded
  for (const int member : group.members)
    place(open, report.ranks[static_cast<std::size_t>(member)], entry, report.when);
  return open;
}

/// Every collective that a rank waits in, once; sends and receives by themselves.
std::vector<OpenCollective> find_all(const FlightReport& report) {
  std::vector<std::pair<Clock::time_point, OpenCollective>> found;
  std::set<std::pair<std::uint64_t, std::int64_t>> seen;
  for (const RankFlight& flight : report.ranks)
    for (const FlightEntry& entry : flight.log.entries) {
      const FlightGroup* group = flight.log.group(entry.group);
      if (group == nullptr || !waits(report, flight.log, *group, entry)) continue;
      if (entry.number >= 0 && !seen.insert({group->id, entry.number}).second) continue;
      found.emplace_back(entry.issued, examine(report, *group, entry, flight.rank));
    }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<OpenCollective> all;
  for (auto& [when, open] : found) all.push_back(std::move(open));
  return all;
}

/// "process 123 is stopped (SIGSTOP or a debugger); its last call: barrier #3 of group 'dp' (...),
/// done 1.500 s ago".
std::string last_seen(const FlightReport& report, int rank) {
  const RankFlight& flight = report.ranks[static_cast<std::size_t>(rank)];
  if (!flight.unreadable.empty())
    return fmt::format("its record cannot be read: {}", flight.unreadable);
  std::string text = fmt::format("its process {} is {}", flight.log.pid, to_string(flight.process));
  if (flight.log.entries.empty()) return text + "; it made no call yet";
  const FlightEntry& last = flight.log.entries.back();
  return text + fmt::format("; its last call: {}, {} {}",
                            describe(last, name_of(flight.log.group(last.group))),
                            to_string(last.state), seconds_before(report.when, last.changed));
}

/// Follows who waits for whom to those who wait for nobody.
class RootSearch {
 public:
  explicit RootSearch(const FlightReport& report) : report_(report) {}

  void run(OpenCollective& open) {
    path_ = {&open};
    follow(open);
    // Where a process is stopped or gone, ranks that run may be on their way.
    const bool stands = std::any_of(found_.begin(), found_.end(), [&](const Found& one) {
      return one.root && flight(one.rank).stands();
    });
    std::vector<std::string> texts;
    for (const Found& one : found_) {
      if (one.root && stands && !flight(one.rank).stands()) continue;
      if (one.root) open.roots.push_back(one.rank);
      texts.push_back(one.text);
    }
    std::sort(open.roots.begin(), open.roots.end());
    open.root_cause = fmt::format("{}", fmt::join(texts, "; "));
  }

 private:
  /// A rank that keeps others waiting: in the end, or because it waits itself.
  struct Found {
    int rank;
    bool root;
    std::string text;
  };

  const RankFlight& flight(int rank) const { return report_.ranks[static_cast<std::size_t>(rank)]; }

  void follow(const OpenCollective& at) {
    for (const auto* ranks : {&at.stopped, &at.missing, &at.differing, &at.unknown})
      for (const int rank : *ranks)
        if (visited_.insert(rank).second) look_at(rank, at);
  }

  void look_at(int rank, const OpenCollective& at) {
    const OpenCollective* next = waits_in(rank, at);
    if (next == nullptr) {
      found_.push_back({rank, true, text_of_root(rank, at)});
      return;
    }
    if (std::find(path_.begin(), path_.end(), next) != path_.end()) {
      found_.push_back(
          {rank, true,
           fmt::format("ranks wait for each other: rank {} is in {} and has not come to {}", rank,
                       next->what, at.what)});
      return;
    }
    found_.push_back({rank, false,
                      fmt::format("rank {} has not come to {}, since it waits in {}", rank, at.what,
                                  next->what)});
    const std::size_t before = found_.size();
    path_.push_back(next);
    follow(*next);
    path_.pop_back();
    // Nobody keeps it there: it is about to come.
    if (found_.size() == before) found_.pop_back();
  }

  /// The other collective in which a rank waits that has not come to this one; null if there is
  /// none.
  const OpenCollective* waits_in(int rank, const OpenCollective& at) const {
    if (flight(rank).stands() || holds(at.differing, rank)) return nullptr;
    for (const OpenCollective& other : report_.open)
      if (&other != &at && holds(other.waiting, rank)) return &other;
    return nullptr;
  }

  std::string text_of_root(int rank, const OpenCollective& at) const {
    const char* const how = holds(at.differing, rank) ? "differs in"
                            : holds(at.stopped, rank) ? "is in"
                            : holds(at.unknown, rank) ? "is not known to have come to"
                                                      : "has not come to";
    return fmt::format("rank {} {} {}: {}", rank, how, at.what, last_seen(report_, rank));
  }

  const FlightReport& report_;
  std::vector<const OpenCollective*> path_;
  std::set<int> visited_;
  std::vector<Found> found_;
};

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void add_open(std::string& out, const OpenCollective& open) {
  const auto line = std::back_inserter(out);
  fmt::format_to(line, "open: {}\n", open.what);
  const std::pair<const char*, const std::vector<int>*> parts[] = {
      {"joined and waiting", &open.waiting},
      {"through", &open.done},
      {"not come", &open.missing},
      {"not known", &open.unknown},
      {"joined, but not running", &open.stopped}};
  for (const auto& [name, ranks] : parts)
    if (!ranks->empty()) fmt::format_to(line, "  {}: {}\n", name, ranks_text(*ranks));
  for (const std::string& one : open.differences) fmt::format_to(line, "  differs: {}\n", one);
  if (!open.root_cause.empty()) fmt::format_to(line, "  root cause: {}\n", open.root_cause);
}

void add_rank(std::string& out, const FlightReport& report, const RankFlight& flight,
              std::size_t entries) {
  const auto line = std::back_inserter(out);
  if (!flight.unreadable.empty()) {
    fmt::format_to(line, "rank {}: its record cannot be read: {}\n", flight.rank,
                   flight.unreadable);
    return;
  }
  fmt::format_to(line, "rank {}: process {} is {}, {} calls recorded\n", flight.rank,
                 flight.log.pid, to_string(flight.process), flight.log.entries.size());
  const std::size_t count = std::min(entries, flight.log.entries.size());
  for (auto entry = flight.log.entries.end() - static_cast<std::ptrdiff_t>(count);
       entry != flight.log.entries.end(); ++entry)
    fmt::format_to(line, "  {}: issued {}, {} {}\n",
                   describe(*entry, name_of(flight.log.group(entry->group))),
                   seconds_before(report.when, entry->issued), to_string(entry->state),
                   seconds_before(report.when, entry->changed));
}

}  // namespace

std::string describe(const FlightEntry& entry, const std::string& group) {
  const bool message = entry.number < 0;
  std::string text =
      fmt::format("{} #{} of group '{}'", kind_name(entry.kind),
                  message ? entry.sequence : static_cast<std::uint64_t>(entry.number), group);
  if (entry.kind == CollectiveKind::kBarrier) return text;
  text += fmt::format(" ({}", dtype_name(entry.dtype));
  if (entry.kind == CollectiveKind::kAllReduce || entry.kind == CollectiveKind::kReduceScatter)
    text += fmt::format(", {}", reduce_op_name(entry.op));
  if (entry.root >= 0) text += fmt::format(", {} {}", message ? "peer" : "root", entry.root);
  return text + fmt::format(", {} bytes)", entry.bytes);
}

FlightReport read_flight_report(const FlightField& field) {
  FlightReport report;
  report.abort = field.abort_board().newest();
  for (const FlightField::Log& one : field.logs) {
    RankFlight flight;
    flight.rank = static_cast<int>(report.ranks.size());
    if (const auto log = one.log.read()) {
      flight.log = *log;
      flight.process = PeerProcess(log->pid, log->start_time, log->pid_namespace).state();
    } else {
      flight.unreadable = one.log ? "it has not begun its log" : one.why_not;
    }
    report.ranks.push_back(std::move(flight));
  }
  // Behind the logs, so that nothing in them is younger.
  report.when = Clock::now();
  report.open = find_all(report);
  for (OpenCollective& open : report.open) RootSearch(report).run(open);
  return report;
}

const OpenCollective* find_open(const FlightReport& report, std::uint64_t group_id,
                                std::int64_t number, int rank) {
  for (const OpenCollective& open : report.open)
    if (open.group_id == group_id && open.number == number && holds(open.waiting, rank))
      return &open;
  return nullptr;
}

std::string to_text(const FlightReport& report, std::size_t entries) {
  std::string out;
  if (report.abort)
    out += fmt::format("abort record of rank {}: {}\n", report.abort->rank, report.abort->text);
  if (report.open.empty()) out += "no collective is open\n";
  for (const OpenCollective& open : report.open) add_open(out, open);
  for (const RankFlight& flight : report.ranks) add_rank(out, report, flight, entries);
  return out;
}

}  // namespace meshloom::comm
