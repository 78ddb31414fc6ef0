// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/request_key.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "kernels/base/error.h"

namespace meshloom::control {

std::string deterministic_bytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string message_digest(const std::string& method, const google::protobuf::Message& message) {
  const std::string bytes = method + '\0' + deterministic_bytes(message);
  const auto hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

RequestKey make_request_key(const std::string& method, const google::protobuf::Message& request,
                            const std::string& client) {
  std::unique_ptr<google::protobuf::Message> copy(request.New());
  copy->CopyFrom(request);
  const auto* field = copy->GetDescriptor()->FindFieldByName("request_id");
  RequestKey key;
  key.id = copy->GetReflection()->GetString(*copy, field);
  if (key.id.empty()) return key;
  constexpr std::size_t kLongest = 64;
  const bool valid =
      key.id.size() <= kLongest && std::all_of(key.id.begin(), key.id.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '-' || c == '_';
      });
  if (!valid)
    throw InvalidArgument("request_id is not valid, expected a UUID or [A-Za-z0-9_-]{1,64}",
                          "REQUEST_ID_INVALID", {{"field", "request_id"}});
  key.id = client + '/' + key.id;
  copy->GetReflection()->ClearField(copy.get(), field);
  key.digest = message_digest(method, *copy);
  return key;
}

}  // namespace meshloom::control
