// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/symmetric_algorithms.h"

#include "daemon/comm/backoff.h"
#include "daemon/comm/symm_collectives/symmetric_exchange.h"
#include "daemon/comm/symm_collectives/symmetric_exposure.h"
#include "daemon/comm/symm_collectives/symmetric_reduce.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// Among the members of a group that is being made, over its messages.
class MessageExchange final : public PeerExchange {
 public:
  MessageExchange(Algorithms& messages, std::chrono::milliseconds timeout)
      : messages_(messages), timeout_(timeout) {}

  int rank() const override { return messages_.rank(); }
  int size() const override { return messages_.size(); }

  void all_gather(std::span<const TensorView> parts, const std::function<void()>& idle) override {
    const TensorView& own = parts[static_cast<std::size_t>(rank())];
    Call call{make_signature(CollectiveKind::kAllGather, own.dtype, parts), parts, {&own, 1}};
    call.signature.sequence = next_++;
    std::uint64_t bytes_sent = 0, bytes_staged = 0;
    call.bytes_sent = &bytes_sent;
    call.bytes_staged = &bytes_staged;
    const std::unique_ptr<Collective> work = messages_.start(call);
    const auto deadline = Clock::now() + timeout_;
    for (Backoff backoff; !advance(*work); backoff.pause()) {
      if (Clock::now() > deadline)
        throw DeadlineExceeded(
            fmt::format("symmetric memory: rank {} of a new group of {} did not hear of all "
                        "others within {} ms; missing rank {}",
                        rank(), size(), timeout_.count(), fmt::join(work->missing(), ", ")),
            "BOOTSTRAP_TIMEOUT");
      idle();
    }
  }

 private:
  bool advance(Collective& work) {
    messages_.progress();
    return work.advance();
  }

  Algorithms& messages_;
  std::chrono::milliseconds timeout_;
  std::uint64_t next_ = 0;
};

/// A message in flight; while there is one, messages are moved.
class CountedMessage final : public Collective {
 public:
  CountedMessage(std::unique_ptr<Collective> message, int& count)
      : message_(std::move(message)), count_(count) {
    ++count_;
  }
  ~CountedMessage() override { --count_; }
  CountedMessage(const CountedMessage&) = delete;
  CountedMessage& operator=(const CountedMessage&) = delete;
  bool advance() override { return message_->advance(); }
  std::uint64_t progress() const override { return message_->progress(); }
  std::vector<int> missing() const override { return message_->missing(); }

 private:
  std::unique_ptr<Collective> message_;
  int& count_;
};

class SymmetricAlgorithms final : public Algorithms {
 public:
  SymmetricAlgorithms(std::unique_ptr<Algorithms> messages, const SymmetricSetup& setup,
                      GatheredSegments pads)
      : messages_(std::move(messages)),
        setup_(setup),
        context_(std::move(pads), messages_->rank(), setup) {}

  int rank() const override { return messages_->rank(); }
  int size() const override { return messages_->size(); }
  std::shared_ptr<SymmetricMemory> symmetric_memory() const override { return setup_.memory; }

  bool exposes(std::size_t views) const override { return SymmetricExposure::fits(views); }

  std::unique_ptr<Collective> start(const Call& call) override {
    if (call.exposed) return std::make_unique<SymmetricExposure>(context_, call);
    switch (call.signature.kind) {
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        return std::make_unique<CountedMessage>(messages_->start(call), in_flight_);
      case CollectiveKind::kReduceScatter: return std::make_unique<SymmetricReduce>(context_, call);
      case CollectiveKind::kAllReduce:
        if (call.is_one_shot()) return std::make_unique<SymmetricOneShot>(context_, call);
        return std::make_unique<SymmetricReduce>(context_, call);
      default: return SymmetricExchange::start(context_, call);
    }
  }

  void progress() override {
    if (in_flight_ > 0) messages_->progress();
    context_.pump();
  }

  std::unique_ptr<Algorithms> split(const std::vector<std::vector<int>>& parts,
                                    std::uint64_t key) override {
    auto messages = messages_->split(parts, key);
    if (messages->size() == 1) return messages;
    return make_symmetric_algorithms(std::move(messages), setup_);
  }

  void renew() override {
    messages_->renew();
    context_.renew();
  }
  void abandon_memory() override {
    messages_->abandon_memory();
    context_.abandon_memory();
  }

 private:
  std::unique_ptr<Algorithms> messages_;
  SymmetricSetup setup_;
  SymmetricContext context_;
  int in_flight_ = 0;  ///< messages
};

}  // namespace

std::unique_ptr<Algorithms> make_symmetric_algorithms(std::unique_ptr<Algorithms> messages,
                                                      const SymmetricSetup& setup) {
  MessageExchange exchange(*messages, setup.timeout);
  SegmentPiece mine;
  // A rank where it is turned off takes part, so that the others hear of it.
  if (setup.memory->options().sharing == SharingMode::kNone) mine.trouble = "sharing is turned off";
  try {
    if (mine.trouble.empty())
      mine.segment = setup.memory->make_segment(CollectivePad::bytes(messages->size()));
  } catch (const Error& error) {
    mine.trouble = error.what();
  }
  GatheredSegments pads = setup.memory->directory().gather(exchange, mine);
  if (!pads.why_not.empty()) {
    setup.memory->note_refusal(pads.why_not);
    return messages;
  }
  return std::make_unique<SymmetricAlgorithms>(std::move(messages), setup, std::move(pads));
}

}  // namespace meshloom::comm
