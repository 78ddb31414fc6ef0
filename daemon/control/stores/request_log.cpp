// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/request_log.h"

#include "kernels/base/error.h"

namespace meshloom::control {

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
  const auto found = by_id_.find(key.id);
  if (key.id.empty() || found == by_id_.end()) return nullptr;
  if (found->second.digest() != key.digest)
    throw InvalidArgument(fmt::format("request_id {} was used before for another request", key.id),
                          "REQUEST_ID_REUSED",
                          {{"request_id", key.id}, {"resource", found->second.resource()}});
  return &found->second;
}

void RequestLog::remember(const v1::RequestRecord& record) {
  const auto [place, fresh] = by_id_.emplace(record.request_id(), record);
  if (!fresh) return;
  if (record.gone()) return mark_gone(place->second);
  ids_of_.emplace(record.resource(), record.request_id());
}

void RequestLog::forget_resource(const std::string& resource) {
  const auto [first, last] = ids_of_.equal_range(resource);
  for (auto item = first; item != last; ++item) mark_gone(by_id_.at(item->second));
  ids_of_.erase(first, last);
}

void RequestLog::mark_gone(v1::RequestRecord& record) {
  constexpr std::size_t kMostGone = 10'000;
  record.set_gone(true);
  gone_.push_back(record.request_id());
  if (gone_.size() <= kMostGone) return;
  by_id_.erase(gone_.front());
  gone_.pop_front();
}

void RequestLog::visit(const std::function<void(const v1::RequestRecord&)>& each) const {
  for (const auto& id : gone_) each(by_id_.at(id));
  for (const auto& [resource, id] : ids_of_) each(by_id_.at(id));
}

}  // namespace meshloom::control
