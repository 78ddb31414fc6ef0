// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/diagnosis/flight_log.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace meshloom::comm {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

// Of a word of an entry: group, root, op, dtype and kind.
constexpr int kGroupBits = 24;
constexpr std::uint32_t kMostGroups = (1u << kGroupBits) - 1;

std::uint64_t pack(const FlightEntry& entry) {
  return static_cast<std::uint64_t>(entry.kind) | static_cast<std::uint64_t>(entry.dtype) << 8 |
         static_cast<std::uint64_t>(entry.op) << 16 |
         static_cast<std::uint64_t>(static_cast<std::uint16_t>(entry.root)) << 24 |
         static_cast<std::uint64_t>(entry.group) << 40;
}

Clock::time_point time_of(std::uint64_t nanoseconds) {
  return Clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

}  // namespace

const char* to_string(FlightState state) {
  switch (state) {
    case FlightState::kIssued: return "issued";
    case FlightState::kStarted: return "started";
    case FlightState::kDone: return "done";
    case FlightState::kFailed: return "failed";
  }
  return "?";
}

const FlightGroup* FlightSnapshot::group(std::uint32_t number) const {
  for (const FlightGroup& one : groups)
    if (one.number == number) return &one;
  return nullptr;
}

void FlightLog::begin(int rank, std::uint64_t start_time, std::uint64_t pid_namespace) {
  memory_->rank.store(static_cast<std::uint64_t>(rank), kRelaxed);
  memory_->pid.store(static_cast<std::uint64_t>(getpid()), kRelaxed);
  memory_->start_time.store(start_time, kRelaxed);
  memory_->pid_namespace.store(pid_namespace, kRelaxed);
  memory_->begun.store(1, kRelease);
}

std::uint32_t FlightLog::add_group(const std::string& name, std::uint64_t id,
                                   std::span<const int> members) {
  // A slot that was never used, else that of the oldest end; with all in use the first one's group
  // loses its name.
  Group* slot = &memory_->groups[0];
  std::uint64_t oldest = ~std::uint64_t{0};
  for (Group& one : memory_->groups) {
    if (one.number.load(kRelaxed) == 0) {
      slot = &one;
      break;
    }
    const std::uint64_t ended = one.ended.load(kRelaxed);
    if (ended == 0 || ended >= oldest) continue;
    oldest = ended;
    slot = &one;
  }
  const std::uint64_t so_far = memory_->groups_so_far.load(kRelaxed);
  memory_->groups_so_far.store(so_far + 1, kRelaxed);
  const auto number = static_cast<std::uint32_t>(so_far % kMostGroups + 1);
  const std::uint64_t version = slot->version.load(kRelaxed);
  slot->version.store(version + 1, kRelaxed);
  slot->number.store(number, kRelease);
  slot->ended.store(0, kRelease);
  slot->id.store(id, kRelease);
  slot->size.store(members.size(), kRelease);
  std::array<std::uint64_t, kNameWords> text{};
  std::memcpy(text.data(), name.data(), std::min(name.size(), sizeof(text) - 1));
  for (std::size_t i = 0; i < kNameWords; ++i) slot->name[i].store(text[i], kRelease);
  std::array<std::uint64_t, kMemberWords> packed{};
  for (std::size_t i = 0; i < std::min(members.size(), kMostMembers); ++i)
    packed[i / 4] |= static_cast<std::uint64_t>(static_cast<std::uint16_t>(members[i]))
                     << (16 * (i % 4));
  for (std::size_t i = 0; i < kMemberWords; ++i) slot->members[i].store(packed[i], kRelease);
  slot->version.store(version + 2, kRelease);
  return number;
}

void FlightLog::end_group(std::uint32_t number) {
  for (Group& one : memory_->groups) {
    if (one.number.load(kRelaxed) != number) continue;
    const std::uint64_t ends = memory_->ends_so_far.load(kRelaxed) + 1;
    memory_->ends_so_far.store(ends, kRelaxed);
    one.ended.store(ends, kRelaxed);
  }
}

FlightLog::Ticket FlightLog::issue(const FlightEntry& entry, Clock::time_point now) {
  const Ticket ticket = memory_->next.load(kRelaxed);
  Entry& to = memory_->entries[ticket % kEntries];
  // Odd while the rest changes; who sees a word of the new entry sees this too.
  to.words[0].store(stamp(ticket) - 1, kRelaxed);
  to.words[1].store(static_cast<std::uint64_t>(now.time_since_epoch().count()), kRelease);
  to.words[2].store(packed(FlightState::kIssued, now), kRelease);
  to.words[3].store(static_cast<std::uint64_t>(entry.number), kRelease);
  to.words[4].store(entry.sequence, kRelease);
  to.words[5].store(entry.bytes, kRelease);
  to.words[6].store(static_cast<std::uint64_t>(entry.elements), kRelease);
  to.words[7].store(pack(entry), kRelease);
  to.words[0].store(stamp(ticket), kRelease);
  memory_->next.store(ticket + 1, kRelease);
  return ticket;
}

std::optional<FlightGroup> FlightLog::read(const Group& group) {
  const std::uint64_t version = group.version.load(kAcquire);
  FlightGroup out;
  out.number = static_cast<std::uint32_t>(group.number.load(kAcquire));
  out.id = group.id.load(kAcquire);
  const std::uint64_t size = group.size.load(kAcquire);
  out.size = static_cast<int>(size);
  std::array<std::uint64_t, kNameWords> text{};
  for (std::size_t i = 0; i < kNameWords; ++i) text[i] = group.name[i].load(kAcquire);
  for (std::size_t i = 0; size <= kMostMembers && i < size; ++i)
    out.members.push_back(
        static_cast<int>(group.members[i / 4].load(kAcquire) >> (16 * (i % 4)) & 0xffff));
  if (out.number == 0 || version % 2 != 0 || group.version.load(kRelaxed) != version)
    return std::nullopt;
  const auto* name = reinterpret_cast<const char*>(text.data());
  out.name.assign(name, strnlen(name, sizeof(text)));
  return out;
}

std::optional<FlightEntry> FlightLog::read(const Entry& entry, Ticket ticket) {
  if (entry.words[0].load(kAcquire) != stamp(ticket)) return std::nullopt;
  std::array<std::uint64_t, 8> words{};
  for (std::size_t i = 1; i < words.size(); ++i) words[i] = entry.words[i].load(kAcquire);
  if (entry.words[0].load(kRelaxed) != stamp(ticket)) return std::nullopt;
  FlightEntry out;
  out.issued = time_of(words[1]);
  out.state = static_cast<FlightState>(words[2] >> 60);
  out.changed = time_of(words[2] & ((std::uint64_t{1} << 60) - 1));
  out.number = static_cast<std::int64_t>(words[3]);
  out.sequence = words[4];
  out.bytes = words[5];
  out.elements = static_cast<std::int64_t>(words[6]);
  out.kind = static_cast<CollectiveKind>(words[7] & 0xff);
  out.dtype = static_cast<DType>(words[7] >> 8 & 0xff);
  out.op = static_cast<ReduceOp>(words[7] >> 16 & 0xff);
  out.root = static_cast<std::int16_t>(words[7] >> 24 & 0xffff);
  out.group = static_cast<std::uint32_t>(words[7] >> 40);
  return out;
}

std::optional<FlightSnapshot> FlightLog::read() const {
  if (memory_ == nullptr || memory_->begun.load(kAcquire) == 0) return std::nullopt;
  FlightSnapshot out;
  out.rank = static_cast<int>(memory_->rank.load(kRelaxed));
  out.pid = static_cast<std::int64_t>(memory_->pid.load(kRelaxed));
  out.start_time = memory_->start_time.load(kRelaxed);
  out.pid_namespace = memory_->pid_namespace.load(kRelaxed);
  const Ticket next = memory_->next.load(kAcquire);
  for (Ticket ticket = next - std::min<Ticket>(next, kEntries); ticket < next; ++ticket)
    if (const auto entry = read(memory_->entries[ticket % kEntries], ticket))
      out.entries.push_back(*entry);
  for (const Group& group : memory_->groups)
    if (auto one = read(group)) out.groups.push_back(std::move(*one));
  return out;
}

}  // namespace meshloom::comm
