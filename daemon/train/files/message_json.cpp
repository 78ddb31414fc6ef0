// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/message_json.h"

#include <google/protobuf/util/json_util.h>

#include "kernels/base/error.h"

namespace meshloom::train {

std::string message_to_json(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  check_internal(status.ok(), "{} cannot be written as JSON: {}", message.GetTypeName(),
                 status.ToString());
  return text;
}

std::string message_from_json(const std::string& text, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(text, message, options);
  return status.ok() ? std::string() : status.ToString();
}

std::string validation_progress_to_json(const v1::ValidationProgress& progress) {
  return progress.ByteSizeLong() == 0 ? std::string() : message_to_json(progress);
}

v1::ValidationProgress validation_progress_from_json(const std::string& text) {
  v1::ValidationProgress progress;
  if (text.empty()) return progress;
  if (const std::string wrong = message_from_json(text, &progress); !wrong.empty())
    throw DataLoss(fmt::format("validation_progress: {}", wrong), "CHECKPOINT_DAMAGED");
  return progress;
}

}  // namespace meshloom::train
