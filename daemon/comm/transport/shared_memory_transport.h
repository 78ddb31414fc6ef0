// SPDX-License-Identifier: Apache-2.0
// Transport between ranks of one host over rings in shared memory: ranks that are threads, or
// forked processes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "daemon/comm/transport/byte_ring.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// RingEndpoint keeps one rank's messages over the rings, matched by sender, channel and tag.
/// Shared by all transports of the rank. Every message is a header and its bytes. A message whose
/// receive was not posted yet is kept aside, so that the ring never blocks on the order in which
/// receives are posted.
class RingEndpoint {
 public:
  using Request = Transport::Request;

  RingEndpoint(std::shared_ptr<const RingField> field, int rank);

  int rank() const { return rank_; }
  int world_size() const { return field_->world_size; }

  /// Peers are ranks of the field; `channel` tells groups apart.
  Request send(const std::byte* data, std::size_t bytes, int peer, std::uint64_t channel, int tag,
               const Signature* signature);
  Request recv(std::byte* data, std::size_t bytes, int peer, std::uint64_t channel, int tag,
               const Signature* signature);
  void progress();
  /// Throws as Transport::test.
  bool test(Request request);
  void cancel(Request request);
  /// Makes the endpoint as good as new, with empty rings towards this rank. No peer may be sending
  /// then, and no request may be left.
  void reset();

 private:
  struct Header {
    std::uint64_t channel;
    std::uint64_t tag;
    std::uint64_t bytes;
    Signature signature;
  };
  struct Send {
    Header header;
    const std::byte* data;
    std::size_t written;  ///< header included
    Request request;
  };
  struct Receive {
    std::byte* data;
    std::size_t bytes;
    Request request;
    Signature signature;
  };
  /// Early is a message that came before its receive.
  struct Early {
    Header header;
    std::vector<std::byte> bytes;
  };
  using Key = std::tuple<int, std::uint64_t, int>;  ///< sender, channel, tag

  /// A sender's ring is in the middle of this message.
  struct Incoming {
    Header header{};
    std::size_t header_bytes = 0;
    std::byte* target = nullptr;
    std::size_t read = 0;
    bool posted = false;   ///< target belongs to `request`, else to `kept`
    bool refused = false;  ///< it does not fit its receive: nobody wants the bytes
    Request request = 0;
    std::vector<std::byte> kept;
  };
  enum class State : std::uint8_t { kFree, kPending, kDone, kDiffers };

  Request new_request();
  void push(int peer);
  void pull(int peer);
  void begin_message(int peer, Incoming& in);
  void end_message(int peer, Incoming& in);
  /// Returns the oldest receive of `key`, if there is one.
  std::optional<Receive> take_posted(const Key& key);
  /// Returns false if the message is of another collective; the test of the receive then tells.
  bool fits(const Receive& receive, const Header& header, int peer);

  std::shared_ptr<const RingField> field_;
  int rank_;
  std::vector<State> requests_;
  std::map<Request, SignatureDiffers> differences_;
  std::vector<Request> free_;
  std::vector<std::deque<Send>> sends_;  ///< by peer
  std::vector<char> broken_;        ///< by peer: a message ended in the middle, nothing may follow
  std::vector<Incoming> incoming_;  ///< by peer
  std::map<Key, std::deque<Receive>> posted_;
  std::map<Key, std::deque<Early>> early_;
};

/// Makes a transport of all ranks of the endpoint's field, seen from its rank. Groups of some ranks
/// come by split.
std::unique_ptr<Transport> make_shared_memory_transport(std::shared_ptr<RingEndpoint> endpoint);

}  // namespace meshloom::comm
