// SPDX-License-Identifier: Apache-2.0
// Stream and Event: an opaque queue of device work, and marks in it.
#pragma once

namespace meshloom {

/// On the CPU every call is done when it returns and the handle is null.
struct Stream {
  void* handle = nullptr;

  bool operator==(const Stream&) const = default;
};

/// OwnedStream is a stream that somebody owns. Made by Backend::make_stream; its end waits for the
/// work in it.
class OwnedStream {
 public:
  explicit OwnedStream(Stream stream) : stream_(stream) {}
  virtual ~OwnedStream() = default;
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }

 private:
  Stream stream_;
};

/// Event is a mark in a stream, which the host can wait for and measure from. Made by
/// Backend::make_event and used with streams of that backend.
class Event {
 public:
  virtual ~Event() = default;
  /// Marks the place behind all work that `stream` was given so far. A later call moves the mark.
  virtual void record(const Stream& stream) = 0;
  /// Blocks the host until all work before the mark is done; returns at once if there is no mark.
  virtual void wait() = 0;
  /// Tells whether all work before the mark is done; true if there is no mark. Asks, and never
  /// waits.
  virtual bool done() = 0;
  /// Returns the seconds from when the device came to the mark of `start` to when it came to this
  /// one. Waits for both, which are recorded.
  virtual double seconds_since(Event& start) = 0;
};

}  // namespace meshloom
