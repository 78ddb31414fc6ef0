// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fenced_event.h"

#include "kernels/base/error.h"

namespace meshloom::testing {
namespace {

constexpr double kSecondsOfItem = 1e-6;

}  // namespace

void FencedEvent::record(const Stream& stream) {
  mark_ = streams_.mark(stream);
  counted_ = false;
}

void FencedEvent::wait() {
  if (!mark_) return;
  if (!streams_.has_come(*mark_)) count_wait();
  streams_.wait(*mark_);
}

bool FencedEvent::done() {
  if (!mark_) return true;
  if (!streams_.has_come(*mark_)) streams_.move_on();
  if (!streams_.has_come(*mark_)) {
    count_wait();
    return false;
  }
  // Nothing is left to run: the host learns what is done.
  streams_.wait(*mark_);
  return true;
}

double FencedEvent::seconds_since(Event& start) {
  FencedEvent& begin = fenced_event(start, streams_);
  if (!mark_ || !begin.mark_)
    throw InternalError("fenced device: seconds_since: an event was not recorded");
  begin.wait();
  wait();
  return (static_cast<double>(mark_->position) - static_cast<double>(begin.mark_->position)) *
         kSecondsOfItem;
}

void FencedEvent::count_wait() {
  if (!counted_) ++streams_.counts().waits;
  counted_ = true;
}

FencedEvent& fenced_event(Event& event, const FencedStreams& streams) {
  auto* const own = dynamic_cast<FencedEvent*>(&event);
  check_internal(own != nullptr && &own->streams() == &streams,
                 "fenced device: an event of another device");
  return *own;
}

}  // namespace meshloom::testing
