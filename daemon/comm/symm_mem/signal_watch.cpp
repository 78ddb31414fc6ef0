// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/signal_watch.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// A rank that was stopped itself, or debugged, has not waited all that time.
constexpr auto kLongestGap = std::chrono::milliseconds(100);
constexpr auto kProcessInterval = std::chrono::milliseconds(3);

template <typename Thrown>
std::exception_ptr make(const std::string& text, const char* reason, Error::Metadata metadata) {
  return std::make_exception_ptr(Thrown(text, reason, std::move(metadata)));
}

}  // namespace

std::string SignalWatch::describe(const Call& call) const {
  const std::string channel = call.channel < 0 ? "" : fmt::format(" on channel {}", call.channel);
  return fmt::format("{}{} of group '{}' on rank {} of {}", call.name, channel, group_.name(),
                     group_.rank(), group_.size());
}

std::exception_ptr SignalWatch::look(const Call& call, const std::vector<int>& missing,
                                     Progress& progress) {
  directory_.pump();
  if (abort_ != nullptr && abort_->raised.load(std::memory_order_acquire))
    return make<Aborted>(describe(call) + ": given up, since the abort flag was raised",
                         "COLLECTIVE_ABORTED", {});
  if (FailureDomain* failures = group_.failures())
    if (const Failure* failure = failures->poll())
      return std::make_exception_ptr(
          PeerFailed(fmt::format("{}: given up, since rank {} failed: {}", describe(call),
                                 failure->rank, failure->text),
                     *failure));
  const Clock::time_point now = Clock::now();
  if (now - progress.processes_seen >= kProcessInterval) {
    progress.processes_seen = now;
    if (std::exception_ptr gone = find_gone(call, missing)) return gone;
  }
  progress.waited += std::min<Clock::duration>(now - progress.last_look, kLongestGap);
  progress.last_look = now;
  return progress.waited >= call.timeout ? timed_out(call, missing) : nullptr;
}

std::exception_ptr SignalWatch::find_gone(const Call& call, const std::vector<int>& missing) const {
  for (const int rank : missing) {
    const PeerProcess* peer = process(rank);
    if (peer == nullptr || !peer->gone()) continue;
    return make<CommError>(fmt::format("{}: the process of rank {} (pid {}) has ended",
                                       describe(call), rank, peer->pid()),
                           "SYMM_MEM_PEER_GONE",
                           {{"call", call.name},
                            {"channel", std::to_string(call.channel)},
                            {"group", group_.name()},
                            {"rank", std::to_string(group_.rank())},
                            {"missing", std::to_string(rank)},
                            {"pid", std::to_string(peer->pid())}});
  }
  return nullptr;
}

std::exception_ptr SignalWatch::timed_out(const Call& call, const std::vector<int>& missing) const {
  std::vector<std::string> ranks, texts;
  for (const int rank : missing) {
    ranks.push_back(std::to_string(rank));
    const PeerProcess* peer = process(rank);
    texts.push_back(peer == nullptr ? fmt::format("rank {}, a thread of this process", rank)
                                    : fmt::format("rank {}, whose process {} is {}", rank,
                                                  peer->pid(), to_string(peer->state())));
  }
  return make<DeadlineExceeded>(
      fmt::format("{}: nothing came within {} ms; missing {}", describe(call), call.timeout.count(),
                  fmt::join(texts, "; ")),
      "SYMM_MEM_TIMEOUT",
      {{"call", call.name},
       {"channel", std::to_string(call.channel)},
       {"group", group_.name()},
       {"rank", std::to_string(group_.rank())},
       {"missing", fmt::format("{}", fmt::join(ranks, ", "))},
       {"timeout_ms", std::to_string(call.timeout.count())}});
}

}  // namespace meshloom::comm
