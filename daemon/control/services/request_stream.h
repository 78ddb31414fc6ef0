// SPDX-License-Identifier: Apache-2.0
// RequestStream: what a client streams to a handler, by whatever door it came.
#pragma once

namespace meshloom::control {

/// A client that can be cut off while somebody reads from it.
class CutOff {
 public:
  /// Ends the call: a read that waits ends soon. Any thread; does not wait.
  virtual void cut_off() = 0;

 protected:
  ~CutOff() = default;
};

template <typename Request>
class RequestStream : public CutOff {
 public:
  /// Waits for the next message; false at the end of the stream, and once the client has gone.
  virtual bool read(Request* request) = 0;

 protected:
  ~RequestStream() = default;
};

}  // namespace meshloom::control
