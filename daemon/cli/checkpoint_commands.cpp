// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/commands.h"
#include "daemon/cli/download.h"
#include "daemon/cli/output.h"

namespace meshloom::cli {
namespace {

struct DownloadOptions {
  std::string name;
  std::string folder;
};

ExitCode list(Client& client, bool json, const std::string& job) {
  v1::ListCheckpointsRequest request;
  request.set_job(job);
  v1::ListCheckpointsResponse all;
  do {
    auto page =
        client.call(client.checkpoints(), &v1::CheckpointService::Stub::ListCheckpoints, request);
    request.set_page_token(page.next_page_token());
    for (auto& item : *page.mutable_checkpoints()) *all.add_checkpoints() = std::move(item);
  } while (!request.page_token().empty());
  if (json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"checkpoint", "step", "size", "files", "created"}};
  for (const auto& item : all.checkpoints())
    rows.push_back({item.name(), std::to_string(item.step()), bytes_text(item.size_bytes()),
                    std::to_string(item.files()), item.create_time()});
  print_table(rows);
  return kOk;
}

ExitCode fetch(Client& client, bool json, const DownloadOptions& options) {
  const DownloadResult result = download_checkpoint(client, options.name, options.folder);
  if (json) {
    const nlohmann::ordered_json copied = {
        {"name", options.name}, {"files", result.files}, {"size_bytes", result.bytes}};
    fmt::print("{}\n", copied.dump());
  } else {
    fmt::print("{}: {} files, {}, digests right, in {}\n", options.name, result.files,
               bytes_text(result.bytes), options.folder);
  }
  return kOk;
}

}  // namespace

void add_checkpoint_commands(CLI::App& app, CommandContext& context) {
  auto* checkpoints =
      app.add_subcommand("checkpoint", "List and download checkpoints and exported models");
  checkpoints->require_subcommand(1);
  auto* list_command = checkpoints->add_subcommand("list", "Complete checkpoints and exports");
  auto job = std::make_shared<std::string>();
  list_command->add_option("--job", *job, "Of this job only");
  list_command->callback([&context, job] {
    context.action = [&context, job](Client& client) { return list(client, context.json, *job); };
  });
  auto* download_command =
      checkpoints->add_subcommand("download", "Copy one into a new folder, digests checked");
  auto options = std::make_shared<DownloadOptions>();
  download_command->add_option("name", options->name, "As list shows it")->required();
  download_command->add_option("folder", options->folder, "Folder to make")->required();
  download_command->footer("Example: meshloom checkpoint download checkpoints/job-1/hf model");
  download_command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return fetch(client, context.json, *options);
    };
  });
}

}  // namespace meshloom::cli
