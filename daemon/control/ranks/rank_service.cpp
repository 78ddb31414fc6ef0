// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_service.h"

#include "daemon/control/net/status.h"
#include "daemon/control/ranks/outbox.h"
#include "daemon/control/ranks/rank_channel.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Stream = grpc::ServerReaderWriter<v1::RankCommand, v1::RankMessage>;

}  // namespace

/// A large command, serialised once for all ranks that get the same one.
class RankServiceImpl::Bulk {
 public:
  explicit Bulk(CommandPtr command) : command_(std::move(command)) {}
  bool is(const CommandPtr& command) const { return command_ == command; }
  const std::string& bytes() {
    std::call_once(once_, [this] { bytes_ = command_->SerializeAsString(); });
    return bytes_;
  }

 private:
  const CommandPtr command_;
  std::once_flag once_;
  std::string bytes_;
};

/// A rank that has joined, as long as it is there: it gets the commands and is watched.
class RankServiceImpl::Member final : public CommandSink {
 public:
  Member(RankServiceImpl& service, const v1::RankHello& hello, Stream& stream)
      : service_(service),
        rank_(hello.rank()),
        grants_(hello.other_disk() ? service.options_.grants : nullptr),
        outbox_([&stream](const CommandPtr& command) { return stream.Write(*command); }) {
    service_.watch_.joined(rank_, describe(hello));
    service_.executor_.attach(rank_, this);
  }
  ~Member() override {
    service_.executor_.detach(rank_);
    service_.watch_.left(rank_);
    if (grants_ != nullptr) grants_->left(rank_);
    const std::lock_guard lock(service_.mutex_);
    std::erase_if(service_.announced_, [&](const auto& item) { return item.first.first == rank_; });
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void answered(const v1::RankResult& result) {
    if (grants_ != nullptr) grants_->answered(rank_, result);
  }
  bool send(CommandPtr command) override {
    if (grants_ != nullptr) grants_->sent(rank_, *command);
    if (command->ByteSizeLong() > kLargestInline) command = announce(std::move(command));
    return outbox_.send(std::move(command));
  }

 private:
  CommandPtr announce(CommandPtr command) {
    v1::RankCommand announcement;
    announcement.set_epoch(command->epoch());
    announcement.set_seq(command->seq());
    announcement.set_deadline_ms(command->deadline_ms());
    announcement.mutable_bulk();
    const std::lock_guard lock(service_.mutex_);
    std::shared_ptr<Bulk> bulk = service_.newest_bulk_.lock();
    if (!bulk || !bulk->is(command)) bulk = std::make_shared<Bulk>(command);
    service_.newest_bulk_ = bulk;
    service_.announced_[{rank_, command->seq()}] = std::move(bulk);
    return std::make_shared<const v1::RankCommand>(std::move(announcement));
  }

  RankServiceImpl& service_;
  const int rank_;
  FileGrants* const grants_;
  Outbox<CommandPtr> outbox_;
};

std::string describe(const v1::RankHello& hello) {
  return fmt::format("rank {} (pid {} on {})", hello.rank(), hello.pid(), hello.host());
}

RankServiceImpl::RankServiceImpl(Executor& executor, RankWatch& watch, Options options)
    : executor_(executor), watch_(watch), options_(std::move(options)) {}

v1::RankHello RankServiceImpl::join(Stream& stream) {
  v1::RankMessage message;
  if (!stream.Read(&message) || !message.has_hello())
    throw InvalidArgument("the first message must be a hello", "HELLO_MISSING");
  const int rank = message.hello().rank();
  check(rank > 0 && rank < options_.world_size, "rank {} is not one of 1..{}", rank,
        options_.world_size - 1);
  const std::lock_guard lock(mutex_);
  if (!joined_.emplace(rank, message.hello()).second)
    throw AlreadyExists(fmt::format("rank {} has joined already", rank), "RANK_JOINED");
  return message.hello();
}

grpc::Status RankServiceImpl::Follow(grpc::ServerContext* context, Stream* stream) {
  if (!is_of_launch(*context, options_.secret)) return no_member_of_launch();
  return guarded("Follow", [&] { serve(join(*stream), *stream); });
}

grpc::Status RankServiceImpl::FetchCommand(grpc::ServerContext* context,
                                           const v1::FetchCommandRequest* request,
                                           grpc::ServerWriter<v1::CommandPiece>* pieces) {
  if (!is_of_launch(*context, options_.secret)) return no_member_of_launch();
  return guarded("FetchCommand", [&] {
    std::shared_ptr<Bulk> bulk;
    {
      const std::lock_guard lock(mutex_);
      auto found = announced_.extract({request->rank(), request->seq()});
      if (found.empty())
        throw NotFound(
            fmt::format("no command {} is kept for rank {}", request->seq(), request->rank()));
      bulk = std::move(found.mapped());
    }
    const std::string& bytes = bulk->bytes();
    v1::CommandPiece piece;
    for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      piece.set_data(bytes.substr(at, kPieceBytes));
      if (!pieces->Write(piece)) return;
    }
  });
}

void RankServiceImpl::serve(const v1::RankHello& hello, Stream& stream) {
  Member member(*this, hello, stream);
  if (executor_.all_attached())
    std::call_once(all_joined_, [this] { options_.observer.all_ranks_joined(); });
  v1::RankMessage message;
  while (stream.Read(&message)) {
    watch_.heard(hello.rank());
    if (message.has_stop_request()) {
      options_.observer.request_stop(
          fmt::format("rank {}: {}", hello.rank(), message.stop_request().cause()));
    } else if (message.has_failure()) {
      executor_.recover(message.failure().epoch(), message.failure().cause());
    } else if (message.has_result()) {
      message.mutable_result()->set_rank(hello.rank());
      member.answered(message.result());
      executor_.complete(message.result());
    }
  }
  if (!executor_.stopping())
    executor_.fail(
        CommError(fmt::format("{} left: it died or lost its connection", describe(hello)),
                  "RANK_LOST", {{"rank", std::to_string(hello.rank())}}));
}

std::vector<v1::RankHello> RankServiceImpl::hellos() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::RankHello> hellos;
  for (const auto& [rank, hello] : joined_) hellos.push_back(hello);
  return hellos;
}

}  // namespace meshloom::control
