// SPDX-License-Identifier: Apache-2.0
// The streams of --json consist of these records.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "v1/generate_service.pb.h"
#include "v1/job.pb.h"

namespace meshloom::cli {

/// Returns "type", "time" (when this client got it), then the message's own fields.
nlohmann::ordered_json stream_record(const char* type, const google::protobuf::Message& message);

/// Returns the record of an event; its type is job, step, validation, sample, watch, tokenizing or
/// note: the field that the event has.
nlohmann::ordered_json event_record(const v1::JobEvent& event);

/// Returns a token with what is told of it. The record that ends a sequence is none: it has neither
/// "token_id" nor "weights_step", which is left out where it is not known, too.
nlohmann::ordered_json token_record(const v1::GenerateResponse& response);

/// Prints the record as one line, at once.
void print_record(const nlohmann::ordered_json& record);

}  // namespace meshloom::cli
