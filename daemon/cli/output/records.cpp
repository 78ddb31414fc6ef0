// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/output/records.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/base/message_printer.h"
#include "daemon/base/timestamp.h"

namespace meshloom::cli {
namespace {

const char* type_of(const v1::JobEvent& event) {
  if (event.has_job()) return "job";
  if (event.has_step()) return "step";
  if (event.has_validation()) return "validation";
  if (event.has_sample()) return "sample";
  if (event.has_watch()) return "watch";
  return event.has_tokenizing() ? "tokenizing" : "note";
}

}  // namespace

nlohmann::ordered_json stream_record(const char* type, const google::protobuf::Message& message) {
  nlohmann::ordered_json record = {{"type", type}, {"time", base::now_rfc3339_with_milliseconds()}};
  record.update(base::to_json(message));
  return record;
}

nlohmann::ordered_json event_record(const v1::JobEvent& event) {
  return stream_record(type_of(event), event);
}

nlohmann::ordered_json token_record(const v1::GenerateResponse& response) {
  nlohmann::ordered_json record = base::to_json(response);
  if (response.done()) record.erase("token_id");
  // What ends a sequence was drawn from no weights, and of a folder's weights no step is known.
  if (response.done() || response.weights_step() == 0) record.erase("weights_step");
  return record;
}

void print_record(const nlohmann::ordered_json& record) {
  fmt::print("{}\n", record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace meshloom::cli
