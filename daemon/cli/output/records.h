// SPDX-License-Identifier: Apache-2.0
// What the streams of --json consist of.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "v1/generate_service.pb.h"
#include "v1/job.pb.h"

namespace meshloom::cli {

/// "type", "time" (now: when this client got it), then the message's own fields.
nlohmann::ordered_json stream_record(const char* type, const google::protobuf::Message& message);

/// Its type is job, step, validation, sample, tokenizing or note: the field that the event has.
nlohmann::ordered_json event_record(const v1::JobEvent& event);

/// A token with what is told of it. The record that ends a sequence is none: it has neither
/// "token_id" nor "weights_step", which is left out where it is not known, too.
nlohmann::ordered_json token_record(const v1::GenerateResponse& response);

/// As one line, at once.
void print_record(const nlohmann::ordered_json& record);

}  // namespace meshloom::cli
