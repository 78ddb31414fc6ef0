// SPDX-License-Identifier: Apache-2.0
// RequestLog: the requests that were answered, so that a repeat gets the same answer.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/control/stores/request_key.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// A request id is known as long as its resource, but of one that has had more than 10,000 requests
/// the first, which has made it, and the newest alone; of deleted ones the newest 10,000. Not
/// synchronised.
class RequestLog {
 public:
  /// What a client's repeat is to find; nothing if it gave no request id.
  static std::optional<v1::RequestRecord> record_of(const RequestKey& key,
                                                    const std::string& resource);

  /// Null for a new request. Throws InvalidArgument (REQUEST_ID_REUSED).
  const v1::RequestRecord* find(const RequestKey& key) const;
  void remember(const v1::RequestRecord& record);
  /// The resource was deleted.
  void forget_resource(const std::string& resource);
  void visit(const std::function<void(const v1::RequestRecord&)>& each) const;

 private:
  void mark_gone(v1::RequestRecord& record);

  std::map<std::string, v1::RequestRecord> by_id_;
  // Ids, oldest first.
  std::map<std::string, std::deque<std::string>> ids_of_;  ///< of resources that there are
  std::deque<std::string> gone_;
};

}  // namespace meshloom::control
