// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/failure/rank_groups.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// What the members of one group told about it.
struct GroupReports {
  int reports = 0;
  std::uint64_t collectives = 0;
  std::uint64_t next_sequence = 0;  ///< the largest
  std::int64_t unmatched = 0;
  bool in_step = true;
};

struct Meeting {
  std::vector<std::string> reports;              ///< by rank
  std::map<std::uint64_t, GroupReports> groups;  ///< by id
  std::uint64_t verb = 0;                        ///< the latest
  bool in_step = true;
};

Meeting read_meeting(const std::vector<std::string>& packed) {
  Meeting meeting;
  std::map<std::uint64_t, int> sizes;
  for (const std::string& text : packed) {
    std::istringstream in(text);
    std::size_t count = 0;
    std::uint64_t verb = 0;
    in >> verb >> count;
    // A rank that is a verb behind has that verb's successor before it, the others have not.
    if (!meeting.reports.empty() && verb != meeting.verb) meeting.in_step = false;
    meeting.verb = std::max(meeting.verb, verb);
    for (std::size_t i = 0; i < count; ++i) {
      GroupStanding one;
      in >> one.id >> one.size >> one.collectives >> one.next_sequence >> one.whole >>
          one.unmatched;
      GroupReports& all = meeting.groups[one.id];
      if (all.reports > 0 && all.collectives != one.collectives) all.in_step = false;
      if (!one.whole) all.in_step = false;
      all.collectives = one.collectives;
      all.next_sequence = std::max(all.next_sequence, one.next_sequence);
      all.unmatched += one.unmatched;
      ++all.reports;
      sizes[one.id] = one.size;
    }
    in.get();  // the end of the last line
    check_internal(static_cast<bool>(in), "recover: a rank's report cannot be read");
    meeting.reports.push_back(text.substr(static_cast<std::size_t>(in.tellg())));
  }
  for (const auto& [id, group] : meeting.groups)
    if (!group.in_step || group.unmatched != 0 || group.reports != sizes[id])
      meeting.in_step = false;
  return meeting;
}

}  // namespace

RankGroups::RankGroups(std::unique_ptr<FailureChannel> channel,
                       std::shared_ptr<const FlightField> flight, TrainingPulse* pulse)
    : channel_(std::move(channel)), flight_(std::move(flight)), pulse_(pulse) {}

RankGroups::~RankGroups() = default;

void RankGroups::poll_all() {
  for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i]->poll();
  give_up_if_noticed();
}

const Failure* RankGroups::poll() {
  poll_all();
  if (raised(Clock::now())) notice();
  give_up_if_noticed();
  return noticed();
}

void RankGroups::notice() {
  if (!noticed_) noticed_ = channel_->first(epoch_);
}

void RankGroups::raise(const std::string& error, std::uint64_t verb) {
  RecoverableGroup::LastIssued latest;
  for (const RecoverableGroup* group : groups_)
    if (auto last = group->last_issued(); last && (latest.text.empty() || last->when > latest.when))
      latest = std::move(*last);
  const std::string text = latest.text.empty() ? error : error + " (after " + latest.text + ")";
  channel_->raise(epoch_, verb, text.substr(0, FailureChannel::kLongestText));
  noticed_ = channel_->first(epoch_);
  if (on_raise_) on_raise_(epoch_, *noticed_);
}

AbortRecord RankGroups::abort(const AbortRecord& mine) {
  AbortBoard& board = flight_->abort_board();
  if (board.claim(epoch_, mine)) {
    if (on_abort_) on_abort_(mine);
    board.tell(epoch_);
    return mine;
  }
  // A rank that leaves first has its launcher kill the one that writes down who failed.
  constexpr auto kLongestTelling = std::chrono::seconds(1);
  board.wait_until_told(epoch_, kLongestTelling);
  return board.read(epoch_).value_or(mine);
}

void RankGroups::after_drop(const std::string& why) noexcept {
  if (broken_ || given_up_ || !has_leftovers()) return;
  try {
    if (!noticed_) raise(why);
    give_up_all();
  } catch (...) {
    // recover() of this rank meets the same end and reports it.
    broken_ = true;
  }
}

void RankGroups::after_break() noexcept {
  broken_ = true;
  try {
    channel_->let_receives_end();
    if (has_leftovers())
      for (RecoverableGroup* group : groups_) group->abandon_memory();
  } catch (...) {
    // What is left stays so: MpiTransport refuses to go on.
  }
}

void RankGroups::give_up_all() {
  for (RecoverableGroup* group : groups_) group->give_up();
  try {
    channel_->quiesce();
  } catch (...) {
    broken_ = true;
    for (RecoverableGroup* group : groups_) group->abandon_memory();
    throw;
  }
  peer_access_->open = false;
  given_up_ = true;
}

FailureDomain::Recovery RankGroups::recover(const std::string& report) {
  if (!noticed_)
    noticed_ = channel_->raised(epoch_, FailureChannel::kAnyVerb, Clock::now())
                   ? channel_->first(epoch_)
                   : Failure{};
  give_up_if_noticed();
  // The verb and how many groups, a line for each, then the report.
  std::string mine = fmt::format("{} {}\n", verb_, groups_.size());
  for (const RecoverableGroup* group : groups_) {
    const GroupStanding s = group->standing();
    mine += fmt::format("{} {} {} {} {:d} {}\n", s.id, s.size, s.collectives, s.next_sequence,
                        s.whole, s.unmatched);
  }
  const Meeting meeting = read_meeting(channel_->exchange(mine + report));
  if (!meeting.in_step) {
    channel_->drain();
    for (RecoverableGroup* group : groups_) {
      const std::uint64_t next = meeting.groups.at(group->standing().id).next_sequence;
      group->start_over(next, noticed_->text);
    }
  }
  // Nobody sends before all have forgotten what was sent.
  channel_->exchange({});
  ++epoch_;
  verb_ = meeting.verb;
  noticed_.reset();
  given_up_ = broken_ = false;
  return {meeting.reports, meeting.in_step};
}

}  // namespace meshloom::comm
