// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/rank_service.h"

#include "daemon/control/status.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Stream = grpc::ServerReaderWriter<v1::RankCommand, v1::RankMessage>;

/// Takes the same time wherever the texts differ.
bool equal_secrets(const grpc::string_ref& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i)
    difference |= static_cast<unsigned char>(a.data()[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace

/// One writer at a time; the reader is the handler's own thread.
class RankServiceImpl::Sink final : public CommandSink {
 public:
  explicit Sink(Stream& stream) : stream_(stream) {}
  bool send(const v1::RankCommand& command) override {
    const std::lock_guard lock(mutex_);
    return stream_.Write(command);
  }

 private:
  std::mutex mutex_;
  Stream& stream_;
};

RankServiceImpl::RankServiceImpl(Executor& executor, Options options)
    : executor_(executor), options_(std::move(options)) {}

v1::RankHello RankServiceImpl::join(grpc::ServerContext& context, Stream& stream) {
  const auto secret = context.client_metadata().find(kSecretKey);
  if (secret == context.client_metadata().end() || !equal_secrets(secret->second, options_.secret))
    throw FailedPrecondition("this port is for the ranks of one launch", "SECRET_WRONG");
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
  return guarded("Follow", [&] { serve(join(*context, *stream), *stream); });
}

void RankServiceImpl::serve(const v1::RankHello& hello, Stream& stream) {
  Sink sink(stream);
  executor_.attach(hello.rank(), &sink);
  if (executor_.all_attached()) std::call_once(all_joined_, options_.on_all_joined);
  v1::RankMessage message;
  while (stream.Read(&message)) {
    if (message.has_stop_request()) {
      options_.on_stop_request(
          fmt::format("rank {}: {}", hello.rank(), message.stop_request().cause()));
    } else if (message.has_failure()) {
      executor_.recover(message.failure().epoch(), message.failure().cause());
    } else if (message.has_result()) {
      message.mutable_result()->set_rank(hello.rank());
      executor_.complete(message.result());
    }
  }
  if (!executor_.stopping())
    executor_.fail(
        CommError(fmt::format("rank {} (pid {} on {}) left: it died or lost its connection",
                              hello.rank(), hello.pid(), hello.host()),
                  "RANK_LOST", {{"rank", std::to_string(hello.rank())}}));
  executor_.detach(hello.rank());
}

std::vector<v1::RankHello> RankServiceImpl::hellos() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::RankHello> hellos;
  for (const auto& [rank, hello] : joined_) hellos.push_back(hello);
  return hellos;
}

}  // namespace meshloom::control
