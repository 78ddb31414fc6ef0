// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/follower.h"

#include "daemon/control/rank_service.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

std::shared_ptr<grpc::Channel> make_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A host that vanishes without a word is noticed after 15 seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Follower::Follower(Options options)
    : options_(std::move(options)),
      stub_(v1::RankService::NewStub(make_channel(options_.address))) {
  context_.AddMetadata(kSecretKey, options_.secret);
  stream_ = stub_->Follow(&context_);
  v1::RankMessage message;
  *message.mutable_hello() = options_.hello;
  send(message);
  reader_ = std::thread([this] { read_commands(); });
}

Follower::~Follower() {
  if (!left_) context_.TryCancel();
  if (reader_.joinable()) reader_.join();
}

void Follower::read_commands() {
  v1::RankCommand command;
  while (stream_->Read(&command)) {
    if (command.has_abort()) {
      options_.on_abort(command.abort().cause());
      break;
    }
    commands_.send(command);
    if (command.has_stop()) return;
  }
  if (!command.has_abort()) options_.on_abort("rank 0 was lost: its command stream ended");
  commands_.close();
}

void Follower::send(const v1::RankMessage& message) {
  const std::lock_guard lock(write_mutex_);
  stream_->Write(message);
}

void Follower::report(const v1::RankResult& result) {
  v1::RankMessage message;
  *message.mutable_result() = result;
  send(message);
}

void Follower::request_stop(const std::string& cause) {
  v1::RankMessage message;
  message.mutable_stop_request()->set_cause(cause);
  send(message);
}

void Follower::report_failure(std::uint64_t epoch, const std::string& cause) {
  v1::RankMessage message;
  message.mutable_failure()->set_epoch(epoch);
  message.mutable_failure()->set_cause(cause);
  send(message);
}

void Follower::wait_for_end() {
  if (reader_.joinable()) reader_.join();
}

void Follower::leave() {
  left_ = true;
  {
    const std::lock_guard lock(write_mutex_);
    stream_->WritesDone();
  }
  if (reader_.joinable()) reader_.join();
  const grpc::Status status = stream_->Finish();
  if (!status.ok()) spdlog::debug("command stream ended: {}", status.error_message());
}

}  // namespace meshloom::control
