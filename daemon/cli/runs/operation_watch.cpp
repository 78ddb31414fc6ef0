// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/operation_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/base/states.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/output/terminal.h"
#include "daemon/cli/runs/operation_output.h"

namespace meshloom::cli {
namespace {

class Watch {
 public:
  Watch(Client& client, const OperationWatchOptions& options)
      : client_(client), options_(options) {}

  ExitCode run() {
    constexpr int kAttempts = 5;  // in a row that bring nothing
    for (int attempt = 1;;) {
      const std::int64_t before = messages_;
      const grpc::Status status = read();
      end_line();
      if (base::is_final(last_.state())) return finish();
      if (interrupted_) return kInterrupted;
      attempt = messages_ > before ? 1 : attempt + 1;
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE || attempt > kAttempts)
        client_.fail(status);
      client_.wait_for_connection(std::chrono::milliseconds(200 * attempt));
    }
  }

 private:
  grpc::Status read() {
    grpc::ClientContext context;
    client_.introduce(context);
    v1::WatchOperationRequest request;
    request.set_name(options_.operation);
    request.mutable_known_tokens()->Add(known_.begin(), known_.end());
    const auto stream = client_.operations().WatchOperation(&context, request);
    const InterruptScope interrupt([&] { context.TryCancel(); });
    v1::WatchOperationResponse response;
    while (stream->Read(&response)) show(response);
    const grpc::Status status = stream->Finish();
    interrupted_ = interrupt.interrupted();
    return status;
  }

  void show(const v1::WatchOperationResponse& response) {
    ++messages_;
    if (response.has_operation()) last_ = response.operation();
    if (response.has_tokens()) count(response.tokens());
    if (options_.json)
      return print_record(stream_record(response.has_tokens() ? "tokens" : "operation", response));
    if (response.has_tokens()) return show_tokens(response.tokens());
    if (base::is_final(last_.state())) return;
    end_line();
    fmt::print(stderr, "{}{}{}\n", state_name(last_.state()),
               last_.waits_for().empty() ? "" : ": waits for ", last_.waits_for());
  }

  void count(const v1::SampledTokens& tokens) {
    const auto sequence = static_cast<std::size_t>(tokens.sequence());
    if (known_.size() <= sequence) known_.resize(sequence + 1);
    known_[sequence] = tokens.first() + tokens.token_ids_size();
  }

  void show_tokens(const v1::SampledTokens& tokens) {
    if (tokens.sequence() != shown_) end_line();
    if (!in_line_ && known_.size() > 1) fmt::print("[{}] ", tokens.sequence());
    shown_ = tokens.sequence();
    in_line_ = true;
    if (tokens.text().empty())
      fmt::print("{} ", fmt::join(tokens.token_ids(), " "));
    else
      print_drawn_text(tokens.text());
    std::fflush(stdout);
  }

  void end_line() {
    if (in_line_) std::fputs("\n", stdout);
    std::fflush(stdout);
    in_line_ = false;
  }

  ExitCode finish() {
    check_succeeded(last_);
    if (options_.json || last_.verb() == "sample") return kOk;
    complete_result(client_, false, &last_);
    print_operation(last_);
    return kOk;
  }

  Client& client_;
  const OperationWatchOptions options_;
  v1::Operation last_;
  std::vector<int> known_;  ///< tokens of each sequence that were shown
  std::int64_t messages_ = 0;
  bool interrupted_ = false;
  bool in_line_ = false;
  int shown_ = 0;  ///< the sequence of the line
};

}  // namespace

ExitCode watch_operation(Client& client, const OperationWatchOptions& options) {
  return Watch(client, options).run();
}

}  // namespace meshloom::cli
