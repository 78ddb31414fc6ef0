// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/job_texts.h"

#include <nlohmann/json.hpp>

#include "daemon/base/message_printer.h"
#include "daemon/base/timestamp.h"
#include "daemon/base/utf8.h"

namespace meshloom::events {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostText = 64 << 10;
constexpr int kStrings = 7;  // TensorFlow's DT_STRING
constexpr int kFloats = 1;   // DT_FLOAT
constexpr int kTensors = 2;  // DATA_CLASS_TENSOR

Event event_of_now(std::int64_t step) {
  Event event;
  event.set_wall_time(base::now_seconds());
  event.set_step(step);
  return event;
}

void flatten(const Json& value, const std::string& path, SessionStart* start) {
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      flatten(item, path.empty() ? key : path + "." + key, start);
  } else if (value.is_boolean()) {
    (*start->mutable_hparams())[path].set_bool_value(value.get<bool>());
  } else if (value.is_number()) {
    (*start->mutable_hparams())[path].set_number_value(value.get<double>());
  } else if (value.is_string()) {
    (*start->mutable_hparams())[path].set_string_value(
        base::printable_text(value.get<std::string>(), 256));
  } else if (value.is_array() && !value.empty()) {
    (*start->mutable_hparams())[path].set_string_value(base::printable_text(value.dump(), 256));
  }
}

/// The plugin reads the metadata; the tensor that they belong to has no value of its own.
Event hparams_summary(const char* tag, const HParamsData& data) {
  Event event = event_of_now(0);
  Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  value.mutable_tensor()->set_dtype(kFloats);
  value.mutable_tensor()->mutable_shape();
  value.mutable_tensor()->add_float_val(0.0F);
  SummaryMetadata& metadata = *value.mutable_metadata();
  metadata.set_data_class(kTensors);
  metadata.mutable_plugin_data()->set_plugin_name("hparams");
  metadata.mutable_plugin_data()->set_content(data.SerializeAsString());
  return event;
}

}  // namespace

Event text_event(std::string_view tag, std::string_view markdown, std::int64_t step) {
  Event event = event_of_now(step);
  Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(base::printable_text(tag, 256, /*keep_newlines=*/false));
  value.mutable_tensor()->set_dtype(kStrings);
  value.mutable_tensor()->mutable_shape();
  value.mutable_tensor()->add_string_val(base::printable_text(markdown, kMostText));
  SummaryMetadata& metadata = *value.mutable_metadata();
  metadata.set_data_class(kTensors);
  metadata.mutable_plugin_data()->set_plugin_name("text");
  return event;
}

std::string verbatim(std::string_view text) {
  std::string block = "    ";
  for (const char c : text) {
    block += c;
    if (c == '\n') block += "    ";
  }
  return block;
}

Event hparams_event(const v1::Job& job) {
  v1::RunConfig config = job.resolved();
  config.clear_metrics();
  config.mutable_data()->clear_identity();
  HParamsData data;
  SessionStart& start = *data.mutable_session_start();
  flatten(base::to_json(config), "", &start);
  start.set_group_name(job.name());
  start.set_start_time(base::seconds_of_rfc3339(job.create_time()).value_or(0.0));
  return hparams_summary("_hparams_/session_start_info", data);
}

Event hparams_end_event(v1::JobState state) {
  HParamsData data;
  data.mutable_session_end()->set_status(state == v1::JOB_STATE_SUCCEEDED ? 1 : 2);
  data.mutable_session_end()->set_end_time(base::now_seconds());
  return hparams_summary("_hparams_/session_end_info", data);
}

Event start_event(std::int64_t after) {
  Event event = event_of_now(after + 1);
  event.mutable_session_log()->set_status(SessionLog::START);
  return event;
}

}  // namespace meshloom::events
