// SPDX-License-Identifier: Apache-2.0
// What makes a repeat of a mutating request harmless, and the bytes of messages that plan ids and
// kept request digests are made of.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "daemon/control/access/identity.h"

namespace meshloom::control {

/// Equal messages give equal bytes: map entries in order. Plan ids and the request digests that the
/// journal keeps are made of these bytes, so they must never change.
std::string deterministic_bytes(const google::protobuf::Message& message);

/// XXH3-128, hexadecimal. Equal messages of one method have equal digests.
std::string message_digest(const std::string& method, const google::protobuf::Message& message);

/// Equal keys are the same request. Empty id: the client does not ask for it.
struct RequestKey {
  std::string id;  ///< "CLIENT/REQUEST_ID": what one client chooses says nothing to another
  std::string digest;
  /// Who asks: what is made is its owner's, and what is another's it changes as an admin alone.
  Identity by = Identity::admin();

  /// As the client has given it; of an earlier daemon's, which had no client, the whole id.
  std::string given_id() const { return id.substr(id.rfind('/') + 1); }
};
/// The digest covers the method and the whole request but its request_id. `client`:
/// Caller::holder(). Throws InvalidArgument for an id that is not [A-Za-z0-9_-]{1,64}.
RequestKey make_request_key(const std::string& method, const google::protobuf::Message& request,
                            const std::string& client);

}  // namespace meshloom::control
