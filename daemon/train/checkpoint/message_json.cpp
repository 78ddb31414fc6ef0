// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/checkpoint/message_json.h"

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

}  // namespace meshloom::train
