// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "daemon/cli/interrupt.h"
#include "daemon/cli/models/model_commands.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/transfers/download_command.h"
#include "daemon/cli/transfers/transfer_display.h"

namespace meshloom::cli {
namespace {

/// What is known of its files, where that is not what is hoped for; else "best: validation loss
/// 2.1250", "best 2: ...", and nothing of one that is none of the best.
std::string state_text(const v1::Checkpoint& checkpoint, bool verified) {
  if (!checkpoint.damage().empty()) return "damaged";
  if (verified && checkpoint.without_digests()) return "no digests";
  if (checkpoint.best() == 0) return {};
  const std::string place = checkpoint.best() == 1 ? "" : fmt::format(" {}", checkpoint.best());
  return fmt::format("best{}: validation loss {:.4f}", place, checkpoint.validation_loss());
}

ExitCode list_checkpoints(Client& client, bool json, v1::ListCheckpointsRequest request) {
  // One checkpoint a call: its files may be large.
  if (request.verify()) request.set_page_size(1);
  const auto all =
      client.list(client.checkpoints(), &v1::CheckpointService::Stub::ListCheckpoints, request,
                  {.deadline = std::chrono::seconds(request.verify() ? 3600 : 30)});
  if (json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"checkpoint", "step", "size", "files", "created", ""}};
  for (const auto& item : all.checkpoints())
    rows.push_back({item.name(), std::to_string(item.step()), bytes_text(item.size_bytes()),
                    std::to_string(item.files()), item.create_time(),
                    state_text(item, request.verify())});
  print_table(rows);
  for (const auto& item : all.checkpoints())
    if (!item.damage().empty()) fmt::print("{}: {}\n", item.name(), item.damage());
  return kOk;
}

/// Waits until the daemon has written the folder, with a bar on a terminal.
ExitCode export_checkpoint(Client& client, bool json, const v1::ExportCheckpointRequest& request) {
  grpc::ClientContext context;
  client.introduce(context);
  const auto stream = client.checkpoints().ExportCheckpoint(&context, request);
  const InterruptScope interrupt([&] { context.TryCancel(); });
  TransferDisplay display(json, "written");
  v1::ExportedFolder exported;
  bool begun = false;
  for (v1::ExportCheckpointResponse event; stream->Read(&event);) {
    if (!begun) display.begin(request.name(), event.total_bytes(), event.done_bytes());
    begun = true;
    if (event.has_exported())
      exported = event.exported();
    else
      display.show(event.done_bytes());
  }
  display.clear();
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) {
    fmt::print(stderr, "the daemon goes on with the export; meshloom checkpoint list shows it\n");
    return kInterrupted;
  }
  if (!status.ok()) client.fail(status);
  if (json) {
    print_json(exported);
    return kOk;
  }
  const v1::Checkpoint& checkpoint = exported.checkpoint();
  fmt::print("{}: {} files, {}, {}, in {}\n", checkpoint.name(), checkpoint.files(),
             bytes_text(checkpoint.size_bytes()), exported.dtype(), exported.folder());
  for (const v1::ExportedFile& file : exported.files())
    fmt::print("  {:<34} {:>10}\n", file.name(), bytes_text(file.size_bytes()));
  for (const std::string& note : exported.notes()) fmt::print("note: {}\n", note);
  fmt::print("to copy it: meshloom checkpoint download {} FOLDER\n", checkpoint.name());
  return kOk;
}

ExitCode delete_checkpoint(Client& client, bool json, v1::DeleteCheckpointRequest request) {
  request.set_request_id(make_request_id());
  const auto response =
      client.call(client.checkpoints(), &v1::CheckpointService::Stub::DeleteCheckpoint, request);
  if (json)
    print_json(response);
  else
    fmt::print("{}: deleted\n", request.name());
  return kOk;
}

void add_list(CLI::App& checkpoints, CommandContext& context) {
  auto* command = checkpoints.add_subcommand(
      "list", "Checkpoints and exports, and what is wrong with those that are damaged");
  auto request = std::make_shared<v1::ListCheckpointsRequest>();
  command->add_option_function<std::string>(
      "--job", [request](const std::string& job) { request->set_job(job); }, "Of this job only");
  command->add_flag_function(
      "--verify", [request](std::int64_t) { request->set_verify(true); },
      "Reads all files and compares their digests; without it files that are missing or short are "
      "found");
  command->callback([&context, request] {
    context.action = [&context, request](Client& client) {
      return list_checkpoints(client, context.json, *request);
    };
  });
}

void add_export(CLI::App& checkpoints, CommandContext& context) {
  auto* command = checkpoints.add_subcommand(
      "export", "Let the daemon write a checkpoint as a Hugging Face folder beside it");
  auto request = std::make_shared<v1::ExportCheckpointRequest>();
  command
      ->add_option_function<std::string>(
          "name", [request](const std::string& name) { request->set_name(name); },
          "As list shows it, or checkpoints/JOB for the job's newest")
      ->required();
  command->add_option_function<std::string>(
      "--dtype", [request](const std::string& dtype) { request->set_dtype(dtype); },
      "float32, bfloat16 or float16; default float32");
  command->footer(
      "A checkpoint of any mesh will do, also while its job trains: the ranks are not asked.\n"
      "Example: meshloom checkpoint export checkpoints/job-1/step-500 --dtype bfloat16");
  command->callback([&context, request] {
    context.action = [&context, request](Client& client) {
      return export_checkpoint(client, context.json, *request);
    };
  });
}

void add_delete(CLI::App& checkpoints, CommandContext& context) {
  auto* command = checkpoints.add_subcommand("delete", "Remove a checkpoint or an export for good");
  auto request = std::make_shared<v1::DeleteCheckpointRequest>();
  command
      ->add_option_function<std::string>(
          "name", [request](const std::string& name) { request->set_name(name); },
          "As list shows it")
      ->required();
  command->add_flag_function(
      "--force", [request](std::int64_t) { request->set_force(true); },
      "Also the newest checkpoint of a job that has ended, and one that keep_best keeps");
  command->footer(
      "Refused while a job that has not ended begins with it or goes on from it.\n"
      "Example: meshloom checkpoint delete checkpoints/job-1/step-500");
  command->callback([&context, request] {
    context.action = [&context, request](Client& client) {
      return delete_checkpoint(client, context.json, *request);
    };
  });
}

}  // namespace

void add_checkpoint_commands(CLI::App& app, CommandContext& context) {
  auto* checkpoints = app.add_subcommand(
      "checkpoint", "List, download, export and delete checkpoints and exported models");
  checkpoints->require_subcommand(1);
  add_list(*checkpoints, context);
  auto* download = checkpoints->add_subcommand("download", "Copy one into a new folder");
  add_download(*download, context, "As list shows it");
  add_export(*checkpoints, context);
  add_delete(*checkpoints, context);
  download->footer("Example: meshloom checkpoint download checkpoints/job-1/hf model");
}

}  // namespace meshloom::cli
