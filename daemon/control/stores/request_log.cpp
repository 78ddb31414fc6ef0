// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/request_log.h"

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMost = 10'000;  // of one resource, and of all that are gone

}  // namespace

std::optional<v1::RequestRecord> RequestLog::record_of(const RequestKey& key,
                                                       const std::string& resource) {
  if (key.id.empty()) return std::nullopt;
  v1::RequestRecord record;
  record.set_request_id(key.id);
  record.set_digest(key.digest);
  record.set_resource(resource);
  return record;
}

const v1::RequestRecord* RequestLog::find(const RequestKey& key) const {
  if (key.id.empty()) return nullptr;
  auto found = by_id_.find(key.id);
  const bool of_client = found != by_id_.end();
  // Records of earlier daemons do not say whose they are.
  if (!of_client) found = by_id_.find(key.given_id());
  if (found == by_id_.end()) return nullptr;
  if (found->second.digest() != key.digest) {
    Error::Metadata metadata = {{"request_id", key.given_id()}};
    if (of_client) metadata["resource"] = found->second.resource();
    throw InvalidArgument(
        fmt::format("request_id {} was used before for another request", key.given_id()),
        "REQUEST_ID_REUSED", metadata);
  }
  return &found->second;
}

void RequestLog::remember(const v1::RequestRecord& record) {
  const auto [place, fresh] = by_id_.emplace(record.request_id(), record);
  if (!fresh) return;
  if (record.gone()) return mark_gone(place->second);
  std::deque<std::string>& ids = ids_of_[record.resource()];
  ids.push_back(record.request_id());
  if (ids.size() <= kMost) return;
  by_id_.erase(ids[1]);
  ids.erase(ids.begin() + 1);
}

void RequestLog::forget_resource(const std::string& resource) {
  const auto found = ids_of_.find(resource);
  if (found == ids_of_.end()) return;
  for (const std::string& id : found->second) mark_gone(by_id_.at(id));
  ids_of_.erase(found);
}

void RequestLog::mark_gone(v1::RequestRecord& record) {
  record.set_gone(true);
  gone_.push_back(record.request_id());
  if (gone_.size() <= kMost) return;
  by_id_.erase(gone_.front());
  gone_.pop_front();
}

void RequestLog::visit(const std::function<void(const v1::RequestRecord&)>& each) const {
  for (const auto& id : gone_) each(by_id_.at(id));
  for (const auto& [resource, ids] : ids_of_)
    for (const std::string& id : ids) each(by_id_.at(id));
}

}  // namespace meshloom::control
