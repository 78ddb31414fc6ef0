// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "daemon/cli/commands.h"
#include "daemon/cli/output.h"
#include "daemon/cli/upload.h"

namespace meshloom::cli {
namespace {

ExitCode send_files(Client& client, bool json, const std::vector<std::string>& files) {
  Uploader uploader(client, json);
  for (const std::string& file : files) {
    Transfer transfer = uploader.begin(file);
    uploader.finish(transfer);
    if (json)
      print_json_line(transfer.upload);
    else
      fmt::print("{}\n", short_name(transfer.upload.name()));
  }
  return kOk;
}

ExitCode list_uploads(Client& client, bool json) {
  const auto all = client.list(client.uploads(), &v1::UploadService::Stub::ListUploads);
  if (json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"upload", "file", "size", "there", "state", "created"}};
  for (const auto& item : all.uploads())
    rows.push_back({short_name(item.name()), item.file_name(), bytes_text(item.size_bytes()),
                    bytes_text(item.committed_bytes()),
                    item.state() == v1::UPLOAD_STATE_COMPLETE ? "complete" : "receiving",
                    item.create_time()});
  print_table(rows);
  return kOk;
}

ExitCode abort_upload(Client& client, bool json, const std::string& name) {
  v1::AbortUploadRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  client.call(client.uploads(), &v1::UploadService::Stub::AbortUpload, request);
  if (json)
    fmt::print("{{}}\n");
  else
    fmt::print("{}: forgotten\n", name);
  return kOk;
}

}  // namespace

void add_upload_commands(CLI::App& app, CommandContext& context) {
  auto* upload = app.add_subcommand(
      "upload", "Send files to the daemon; a repeat goes on where the last one broke off");
  auto files = std::make_shared<std::vector<std::string>>();
  upload->add_option("files", *files, "Files to send");
  upload->require_subcommand(0, 1);
  upload->footer(
      "Examples:\n"
      "  meshloom upload tokens.bin\n"
      "  meshloom upload list\n"
      "A file that is called list or abort: meshloom upload ./list");
  upload->callback([&context, files, upload] {
    if (!upload->get_subcommands().empty()) return;
    if (files->empty())
      throw CLI::RequiredError("files to send are needed, or a command: list, abort",
                               CLI::ExitCodes::RequiredError);
    context.action = [&context, files](Client& client) {
      return send_files(client, context.json, *files);
    };
  });
  auto* list_command = upload->add_subcommand("list", "This client's uploads");
  list_command->callback([&context] {
    context.action = [&context](Client& client) { return list_uploads(client, context.json); };
  });
  auto* abort_command =
      upload->add_subcommand("abort", "Forget an upload; models that were made from it stay");
  auto name = std::make_shared<std::string>();
  abort_command->add_option("name", *name, "As list shows it")->required();
  abort_command->callback([&context, name] {
    context.action = [&context, name](Client& client) {
      return abort_upload(client, context.json, *name);
    };
  });
}

}  // namespace meshloom::cli
