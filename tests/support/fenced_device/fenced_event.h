// SPDX-License-Identifier: Apache-2.0
// Event and OwnedStream of a fenced device.
#pragma once

#include <optional>

#include "kernels/base/stream.h"
#include "tests/support/fenced_device/fenced_streams.h"

namespace meshloom::testing {

/// Only wait, copy_to_host and the ends of streams and segments are sure to bring the device to a
/// mark; done() brings it nearer.
class FencedEvent final : public Event {
 public:
  explicit FencedEvent(FencedStreams& streams) : streams_(streams) {}

  void record(const Stream& stream) override;
  void wait() override;
  bool done() override;
  /// Counts the time by the number of items between the marks, as if each took a microsecond: the
  /// same in every order.
  double seconds_since(Event& start) override;

  FencedStreams& streams() const { return streams_; }
  const std::optional<StreamMark>& mark() const { return mark_; }

 private:
  void count_wait();

  FencedStreams& streams_;
  std::optional<StreamMark> mark_;
  bool counted_ = false;  ///< a wait for this mark
};

/// An event as that of the device with these streams. Throws InternalError where it is not.
FencedEvent& fenced_event(Event& event, const FencedStreams& streams);

class FencedOwnedStream final : public OwnedStream {
 public:
  explicit FencedOwnedStream(FencedStreams& streams)
      : OwnedStream(streams.open_stream()), streams_(streams) {}
  ~FencedOwnedStream() override { streams_.end_stream(get()); }

 private:
  FencedStreams& streams_;
};

}  // namespace meshloom::testing
