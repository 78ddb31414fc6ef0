// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/data/data_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "daemon/cli/data/data_call.h"

namespace meshloom::cli {
namespace {

std::optional<v1::ImportedFile> imported(Client& client, bool json,
                                         const v1::ImportUploadRequest& request) {
  const auto last = last_of<v1::ImportUploadResponse>(
      client, json, "copying",
      [&](grpc::ClientContext* context) { return client.data().ImportUpload(context, request); });
  if (!last) return std::nullopt;
  return last->result();
}

v1::ImportUploadRequest request_of(const DataImport& asked) {
  v1::ImportUploadRequest request;
  request.set_upload(asked.upload);
  request.set_path(asked.path);
  request.set_overwrite(asked.overwrite);
  return request;
}

}  // namespace

std::optional<v1::ImportedFile> import_upload(Client& client, bool json, const DataImport& asked) {
  v1::ImportUploadRequest request = request_of(asked);
  request.set_request_id(make_request_id());
  return imported(client, json, request);
}

bool check_import(Client& client, const DataImport& asked) {
  v1::ImportUploadRequest request = request_of(asked);
  request.set_validate_only(true);
  return imported(client, true, request).has_value();
}

void print_imported(const v1::ImportedFile& file) {
  print_line("file", fmt::format("{}, {}", file.path(), bytes_text(file.bytes())));
  print_line("sha256", file.sha256());
  const std::string& path = file.path();
  const auto is_plain = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '.' || c == '/' || c == '_' || c == '-');
  };
  // JSON's strings are YAML's.
  fmt::print("In the job:\n  data: {{path: {}}}\n",
             std::all_of(path.begin(), path.end(), is_plain) ? path : nlohmann::json(path).dump());
}

}  // namespace meshloom::cli
