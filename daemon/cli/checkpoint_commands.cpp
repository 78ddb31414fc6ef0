// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "daemon/cli/commands.h"
#include "daemon/cli/download_command.h"
#include "daemon/cli/output.h"

namespace meshloom::cli {
namespace {

ExitCode list(Client& client, bool json, const std::string& job) {
  v1::ListCheckpointsRequest request;
  request.set_job(job);
  const auto all =
      client.list(client.checkpoints(), &v1::CheckpointService::Stub::ListCheckpoints, request);
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
  auto* download = checkpoints->add_subcommand("download", "Copy one into a new folder");
  add_download(*download, context, "As list shows it");
  download->footer("Example: meshloom checkpoint download checkpoints/job-1/hf model");
}

}  // namespace meshloom::cli
