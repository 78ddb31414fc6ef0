// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/follower.h"

#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_channel.h"
#include "kernels/base/log.h"

namespace meshloom::control {

Follower::Follower(Options options, Observer& observer)
    : options_(std::move(options)),
      observer_(observer),
      stub_(v1::RankService::NewStub(make_rank_channel(options_.address, false, options_.key))),
      watch_(1, {.rank_timeout = options_.rank_timeout}, nullptr) {
  context_.AddMetadata(kSecretKey, options_.secret);
  stream_ = stub_->Follow(&context_);
  if (options_.pulse != nullptr) sampler_ = std::make_unique<PulseSampler>(*options_.pulse);
  watch_.joined(0, "rank 0");
  v1::RankMessage hello;
  *hello.mutable_hello() = options_.hello;
  outbox_ = std::make_unique<Outbox<v1::RankMessage>>(
      [this](const v1::RankMessage& message) { return stream_->Write(message); });
  outbox_->send(hello);
  fetches_ = std::make_unique<Outbox<CommandPtr>>(
      [this](const CommandPtr& announcement) { return fetch(announcement); });
  reader_ = std::thread([this] { read_commands(); });
  BeatClient::Observer& observed = *this;
  beats_ = std::make_unique<BeatClient>(
      BeatClient::Options{options_.beats, options_.secret, options_.hello.rank(), options_.key},
      observed);
}

v1::Heartbeat Follower::beat() {
  return sampler_ ? sampler_->sample(std::chrono::steady_clock::now()) : v1::Heartbeat();
}

Follower::~Follower() {
  beats_.reset();
  if (!left_) context_.TryCancel();
  outbox_.reset();
  if (reader_.joinable()) reader_.join();
  {
    const std::lock_guard lock(fetch_mutex_);
    fetch_no_more_ = true;
    if (fetching_) fetching_->TryCancel();
  }
  fetches_.reset();
}

bool Follower::fetch(const CommandPtr& announcement) {
  {
    const std::lock_guard lock(fetch_mutex_);
    if (fetch_no_more_) return false;
    fetching_ = std::make_unique<grpc::ClientContext>();
    fetching_->AddMetadata(kSecretKey, options_.secret);
  }
  v1::FetchCommandRequest request;
  request.set_rank(options_.hello.rank());
  request.set_seq(announcement->seq());
  const auto pieces = stub_->FetchCommand(fetching_.get(), request);
  std::string bytes;
  for (v1::CommandPiece piece; pieces->Read(&piece);) bytes += piece.data();
  const grpc::Status status = pieces->Finish();
  auto command = std::make_shared<v1::RankCommand>();
  const bool whole = status.ok() && command->ParseFromString(bytes);
  if (whole) commands_.replace(std::move(command));
  const std::lock_guard lock(fetch_mutex_);
  fetching_.reset();
  if (!whole && !fetch_no_more_)
    abort(fmt::format("rank 0 was lost: command seq {} did not come whole: {}", announcement->seq(),
                      status.error_message()));
  return whole;
}

void Follower::read_commands() {
  v1::RankCommand command;
  while (stream_->Read(&command)) {
    watch_.heard(0);
    if (command.has_abort()) {
      abort(command.abort().cause());
      return;
    }
    auto shared = std::make_shared<const v1::RankCommand>(std::move(command));
    commands_.send(shared);
    if (shared->has_bulk()) fetches_->send(shared);
    if (shared->has_stop()) return;
  }
  abort("rank 0 was lost: its command stream ended");
}

void Follower::look_at_rank0() {
  const RankWatch::Findings findings = watch_.look();
  for (const std::string& news : findings.news) spdlog::warn("{}", news);
  if (!findings.fatal) return;
  abort(findings.fatal->what());
  context_.TryCancel();
}

void Follower::abort(const std::string& cause) {
  std::call_once(aborted_, [&] {
    observer_.rank0_ended(cause);
    commands_.close();
  });
}

void Follower::complete(const v1::RankResult& result) {
  v1::RankMessage message;
  *message.mutable_result() = result;
  if (const std::size_t bytes = message.ByteSizeLong(); bytes > kLargestCommand) {
    v1::RankResult& small = *message.mutable_result();
    small.Clear();
    small.set_seq(result.seq());
    *small.mutable_error() = to_details(ResourceExhausted(
        fmt::format("rank {}: a result of {} bytes is larger than the {} that fit into a message",
                    options_.hello.rank(), bytes, kLargestCommand),
        "RESULT_TOO_LARGE"));
  }
  outbox_->send(std::move(message));
}

void Follower::request_stop(const std::string& cause) {
  v1::RankMessage message;
  message.mutable_stop_request()->set_cause(cause);
  outbox_->send(std::move(message));
}

void Follower::report_failure(std::uint64_t epoch, const std::string& cause) {
  v1::RankMessage message;
  message.mutable_failure()->set_epoch(epoch);
  message.mutable_failure()->set_cause(cause);
  outbox_->send(std::move(message));
}

void Follower::wait_for_end() {
  if (reader_.joinable()) reader_.join();
}

void Follower::leave() {
  left_ = true;
  beats_.reset();
  outbox_->finish();
  stream_->WritesDone();
  if (reader_.joinable()) reader_.join();
  const grpc::Status status = stream_->Finish();
  if (!status.ok()) spdlog::debug("command stream ended: {}", status.error_message());
}

}  // namespace meshloom::control
