// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/segment_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/base/system_message.h"
#include "daemon/comm/backoff.h"
#include "daemon/comm/symm_mem/peer_process.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kLongestText = 256;

void put_text(char (&to)[kLongestText], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), kLongestText - 1));
}

class GroupExchange final : public PeerExchange {
 public:
  explicit GroupExchange(ProcessGroup& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void all_gather(std::span<const TensorView> parts, const std::function<void()>& idle) override {
    const WorkPtr work = group_.all_gather(parts, parts[static_cast<std::size_t>(rank())]);
    for (Backoff backoff; !work->poll(); backoff.pause()) idle();
  }

 private:
  ProcessGroup& group_;
};

/// Whether this process itself has the segment open under the owner's number. A forked child has
/// its parent's descriptors too, but another pid; a process of another PID namespace may have the
/// same pid, and a descriptor that came from there the same number.
bool is_own_process(const SegmentName& name) {
  Nonce seen{};
  return name.pid == getpid() && name.start_time == own_start_time() &&
         name.pid_namespace == own_pid_namespace() &&
         pread(static_cast<int>(name.fd), seen.data(), sizeof(seen),
               static_cast<off_t>(name.bytes)) == static_cast<ssize_t>(sizeof(seen)) &&
         seen == name.nonce;
}

}  // namespace

/// What a rank tells the others of its piece.
struct SegmentDirectory::Card {
  bool given = false;
  SegmentName name;
  std::uint64_t offset = 0, bytes = 0;
  MailboxAddress mailbox;
  char trouble[kLongestText] = {};
};

const char* to_string(Sharing sharing) {
  switch (sharing) {
    case Sharing::kNone: break;
    case Sharing::kSameProcess: return "same process";
    case Sharing::kFdFolder: return "fd folder";
    case Sharing::kSocket: return "socket";
  }
  return "none";
}

std::vector<std::unique_ptr<PeerProcess>> processes_of(const GatheredSegments& all, int rank,
                                                       PeerProcess::Watch watch) {
  const SegmentName& mine = all.segments[static_cast<std::size_t>(rank)]->name();
  std::vector<std::unique_ptr<PeerProcess>> processes;
  for (const auto& segment : all.segments) {
    const SegmentName& name = segment->name();
    const bool own = name.pid == mine.pid && name.start_time == mine.start_time &&
                     name.pid_namespace == mine.pid_namespace;
    processes.push_back(
        own ? nullptr
            : std::make_unique<PeerProcess>(name.pid, name.start_time, name.pid_namespace, watch));
  }
  return processes;
}

SegmentDirectory::SegmentDirectory(SharingMode mode) : mode_(mode) {
  if (mode != SharingMode::kAuto && mode != SharingMode::kSocket) return;
  try {
    mailbox_ = std::make_unique<SegmentMailbox>();
  } catch (const Error& error) {
    no_mailbox_ = error.what();
  }
}

GatheredSegments SegmentDirectory::gather(ProcessGroup& group, const SegmentPiece& mine) {
  GroupExchange exchange(group);
  return gather(exchange, mine);
}

GatheredSegments SegmentDirectory::gather(PeerExchange& group, const SegmentPiece& mine) {
  ReachedSegments reached = reach(group, mine);
  GatheredSegments all = std::move(reached.memory);
  std::string trouble = mine.trouble;
  for (std::size_t r = 0; r < reached.why_not.size() && trouble.empty(); ++r)
    if (!reached.why_not[r].empty())
      trouble = fmt::format("no way to the memory of rank {}: {}", r, reached.why_not[r]);
  all.why_not = agree(group, trouble);
  if (!all.why_not.empty()) all.segments.assign(all.segments.size(), nullptr);
  return all;
}

ReachedSegments SegmentDirectory::reach(PeerExchange& group, const SegmentPiece& mine) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  Card own;
  own.given = mine.segment != nullptr;
  if (mine.segment) own.name = mine.segment->name();
  own.offset = mine.offset;
  own.bytes = mine.bytes;
  if (mailbox_) own.mailbox = mailbox_->address();
  put_text(own.trouble, mine.trouble);
  std::vector<Card> cards(size);
  std::memcpy(cards.data(), exchange(group, &own, sizeof(own)).data(), sizeof(Card) * size);

  ReachedSegments reached{{{size, nullptr}, {}, {}, std::vector<Sharing>(size, Sharing::kNone), {}},
                          std::vector<std::string>(size)};
  GatheredSegments& all = reached.memory;
  std::vector<std::uint8_t> wanted(size, 0);
  std::vector<std::string>& reasons = reached.why_not;
  for (std::size_t r = 0; r < size; ++r) {
    all.offsets.push_back(cards[r].offset);
    all.bytes.push_back(cards[r].bytes);
    if (r == rank) all.segments[r] = mine.segment;
    if (r == rank || !cards[r].given) continue;
    all.segments[r] = open(cards[r].name, all.ways[r], reasons[r]);
    wanted[r] = all.segments[r] == nullptr;
    if (all.segments[r]) reasons[r].clear();
  }
  deliver(group, cards, wanted, mine.segment);
  for (std::size_t r = 0; r < size; ++r) {
    if (!wanted[r]) continue;
    reasons[r].clear();
    all.segments[r] = open(cards[r].name, all.ways[r], reasons[r]);
    if (all.segments[r]) reasons[r].clear();
  }
  return reached;
}

std::shared_ptr<Segment> SegmentDirectory::open(const SegmentName& name, Sharing& way,
                                                std::string& why) {
  if (mode_ == SharingMode::kNone) {
    why = "sharing is turned off";
    return nullptr;
  }
  if (mode_ == SharingMode::kAuto && is_own_process(name)) {
    way = Sharing::kSameProcess;
    // The owner holds it until all ranks of the group have agreed.
    return reinterpret_cast<Segment*>(name.object)->shared_from_this();
  }
  std::erase_if(mapped_, [](const auto& one) { return one.second.segment.expired(); });
  if (const auto known = mapped_.find(name.nonce); known != mapped_.end()) {
    way = known->second.way;
    return known->second.segment.lock();
  }
  std::shared_ptr<Segment> segment;
  way = Sharing::kFdFolder;
  if (mode_ != SharingMode::kSocket) segment = open_by_folder(name, why);
  if (!segment && mode_ != SharingMode::kFdFolder) {
    way = Sharing::kSocket;
    segment = open_arrived(name, why);
  }
  if (segment) mapped_[name.nonce] = {segment, way};
  return segment;
}

std::shared_ptr<Segment> SegmentDirectory::open_by_folder(const SegmentName& name,
                                                          std::string& why) {
  const std::string path = fmt::format("/proc/{}/fd/{}", name.pid, name.fd);
  try {
    base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd) throw IoError(base::system_message(errno));
    return Segment::map(std::move(fd), name);
  } catch (const Error& error) {
    why = fmt::format("{}: {}; ", path, error.what());
    return nullptr;
  }
}

std::shared_ptr<Segment> SegmentDirectory::open_arrived(const SegmentName& name, std::string& why) {
  if (!mailbox_) {
    why += no_mailbox_;
    return nullptr;
  }
  mailbox_->pump();
  base::UniqueFd fd = mailbox_->take(name.nonce);
  try {
    if (fd) return Segment::map(std::move(fd), name);
    why += "no descriptor came over the socket";
  } catch (const Error& error) {
    why += error.what();
  }
  return nullptr;
}

void SegmentDirectory::announce(const std::shared_ptr<Segment>& segment) {
  for (const auto& [secret, address] : correspondents_) mailbox_->post(address, segment);
}

void SegmentDirectory::deliver(PeerExchange& group, const std::vector<Card>& cards,
                               const std::vector<std::uint8_t>& wanted,
                               const std::shared_ptr<Segment>& mine) {
  const std::size_t size = wanted.size();
  const std::vector<std::uint8_t> all = exchange(group, wanted.data(), size);
  if (std::find(all.begin(), all.end(), 1) == all.end()) return;
  for (std::size_t r = 0; r < size && mailbox_ && mine; ++r) {
    const MailboxAddress& peer = cards[r].mailbox;
    if (all[r * size + static_cast<std::size_t>(group.rank())] == 0 || peer.name_bytes == 0)
      continue;
    correspondents_[peer.secret] = peer;
    mailbox_->post(peer, mine);
  }
  // A queue holds few messages, and its owner takes them in as it comes here: more than that needs
  // no long wait, and whoever never comes is found by the group's own deadline.
  const auto until = Clock::now() + std::chrono::seconds(2);
  for (Backoff backoff; mailbox_ && mailbox_->pending() && Clock::now() < until; backoff.pause())
    mailbox_->pump();
  const std::uint8_t sent = 1;
  exchange(group, &sent, 1);
  pump();
}

std::string SegmentDirectory::agree(PeerExchange& group, const std::string& trouble) {
  char mine[kLongestText] = {};
  put_text(mine, trouble);
  const std::vector<std::uint8_t> all = exchange(group, mine, sizeof(mine));
  for (std::size_t r = 0; r < all.size() / kLongestText; ++r) {
    const std::string text = reinterpret_cast<const char*>(all.data() + r * kLongestText);
    if (!text.empty()) return fmt::format("rank {}: {}", r, text);
  }
  return {};
}

std::vector<std::uint8_t> SegmentDirectory::exchange(PeerExchange& group, const void* mine,
                                                     std::size_t bytes) {
  const auto length = static_cast<std::int64_t>(bytes);
  std::vector<std::uint8_t> all(bytes * static_cast<std::size_t>(group.size()));
  std::vector<TensorView> parts;
  for (int r = 0; r < group.size(); ++r)
    parts.push_back(
        make_view(all.data() + bytes * static_cast<std::size_t>(r), DType::kUInt8, Shape{length}));
  std::memcpy(parts[static_cast<std::size_t>(group.rank())].data, mine, bytes);
  // Peers whose messages wait for room here are in this exchange only after that.
  group.all_gather(parts, [this] { pump(); });
  return all;
}

}  // namespace meshloom::comm
