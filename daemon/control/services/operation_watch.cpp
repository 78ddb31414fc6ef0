// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/operation_watch.h"

#include <atomic>

#include "daemon/base/field_error.h"
#include "daemon/base/states.h"

namespace meshloom::control {
namespace {

v1::WatchOperationResponse response_of(v1::Operation operation) {
  v1::WatchOperationResponse response;
  *response.mutable_operation() = std::move(operation);
  return response;
}

}  // namespace

/// Passes a wake on unless one is on its way.
class OperationWatch::OnceWaker final : public Wakeable {
 public:
  explicit OnceWaker(std::shared_ptr<Wakeable> stream) : stream_(std::move(stream)) {}
  void wake() override {
    if (!woken_.exchange(true)) stream_->wake();
  }
  /// The stream looks: the next wake is passed on.
  void arrive() { woken_ = false; }

 private:
  const std::shared_ptr<Wakeable> stream_;
  std::atomic<bool> woken_ = false;
};

OperationWatch::~OperationWatch() {
  if (waiter_ > 0) runs_.operations().forget_waiter(request_.name(), waiter_);
}

void OperationWatch::begin() {
  session_ = runs_.session_of(request_.name());
  for (const int known : request_.known_tokens())
    if (known < 0) base::refuse_field("known_tokens", "{} is negative", known);
  lease_ = session_->hold_lease_of(caller().run_token());
  once_ = std::make_shared<OnceWaker>(waker());
  waiter_ = runs_.operations().watch(request_.name(), once_);
  const Operations::Seen seen = runs_.operations().look(request_.name());
  progress_ = seen.progress;
  known_.assign(request_.known_tokens().begin(), request_.known_tokens().end());
  if (progress_) known_.resize(static_cast<std::size_t>(progress_->sequences()));
  // Its present state is its last one: that comes behind its tokens.
  if (base::is_final(seen.operation.state())) told_ = v1::OPERATION_STATE_RUNNING;
}

bool OperationWatch::tell_state(const Operations::Seen& seen) {
  v1::Operation operation = seen.operation;
  if (base::is_final(operation.state())) {
    if (!seen.begun) return false;
    operation.set_state(v1::OPERATION_STATE_RUNNING);
    operation.clear_error();
    operation.clear_result_bytes();
  }
  if (told_ >= operation.state()) return false;
  told_ = operation.state();
  if (told_ == v1::OPERATION_STATE_WAITING) operation.set_waits_for(session_->waits_for(operation));
  write(response_of(std::move(operation)));
  return true;
}

bool OperationWatch::tell_tokens() {
  const int sequences = progress_ ? progress_->sequences() : 0;
  for (int i = 0; i < sequences; ++i) {
    const int sequence = (turn_ + i) % sequences;
    int& known = known_[static_cast<std::size_t>(sequence)];
    auto tokens = progress_->after(sequence, known);
    if (!tokens) continue;
    known += tokens->token_ids_size();
    turn_ = sequence + 1;
    v1::WatchOperationResponse response;
    *response.mutable_tokens() = std::move(*tokens);
    write(std::move(response));
    return true;
  }
  return false;
}

bool OperationWatch::produce() {
  if (!session_) begin();
  once_->arrive();
  const Operations::Seen seen = runs_.operations().look(request_.name());
  if (tell_state(seen) || tell_tokens()) return true;
  if (!base::is_final(seen.operation.state())) return false;
  write(response_of(runs_.operations().get(request_.name(), !caller().run_token().empty())));
  finish();
  return false;
}

}  // namespace meshloom::control
