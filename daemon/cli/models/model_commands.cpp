// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/models/model_commands.h"
#include "daemon/cli/models/model_folder.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/transfers/upload.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kCheckDeadline{5};

struct CreateModelOptions {
  std::string name;
  std::string folder;  ///< on this machine, to be sent
  std::string preset;
  std::string config;
  std::string data_folder;  ///< on the daemon's
  bool validate_only = false, shared = false;
};

v1::Model create(Client& client, const v1::CreateModelRequest& request) {
  return client
      .call(client.models(), &v1::ModelService::Stub::CreateModel, request,
            {.deadline = kCheckDeadline})
      .model();
}

/// The headers come first and are checked before the weights are sent.
std::vector<Transfer> send_folder(Client& client, bool json, const std::string& folder,
                                  v1::CreateModelRequest request) {
  const ModelFolder files = model_folder(folder);
  if (!json && files.weights.empty() && !files.left_out.empty())
    fmt::print(stderr, "{}: not sent, since weights are read from .safetensors alone\n",
               fmt::join(files.left_out, ", "));
  Uploader uploader(client, json);
  std::vector<Transfer> transfers;
  const auto begin = [&](const fs::path& path) -> Transfer& {
    Transfer& transfer = transfers.emplace_back(uploader.begin(path));
    v1::UploadedFile& file = *request.mutable_uploads()->add_files();
    file.set_name(transfer.name);
    file.set_upload(transfer.upload.name());
    return transfer;
  };
  for (const fs::path& path : files.small) uploader.finish(begin(path));
  for (const fs::path& path : files.weights) {
    Transfer& transfer = begin(path);
    uploader.send(transfer, header_bytes(transfer.file));
  }
  request.set_validate_only(true);
  create(client, request);
  for (std::size_t i = files.small.size(); i < transfers.size(); ++i) uploader.finish(transfers[i]);
  return transfers;
}

void print_model(const v1::Model& model) {
  print_line("model", short_name(model.name()));
  print_line("kind", fmt::format("{}, {} parameters", model.architecture(), model.parameters()));
  print_line("preset", model.preset());
  print_line("data folder", model.data_folder());
  print_line("weights", model.has_weights() ? fmt::format("{} files, {}", model.file_count(),
                                                          bytes_text(model.size_bytes()))
                                            : "none: it is trained from scratch");
  if (model.headless()) print_line("head", "none: run.model.fresh_head trains it with a new one");
  for (const auto& file : model.files())
    fmt::print("  {:<40} {:>10}\n", file.name(), bytes_text(file.size_bytes()));
  for (const std::string& user : model.users()) print_line("used by", user);
  print_line("created", model.create_time());
}

ExitCode make_model(Client& client, bool json, const CreateModelOptions& options) {
  v1::CreateModelRequest request;
  request.set_request_id(make_request_id());
  request.set_name(options.name);
  request.set_validate_only(options.validate_only);
  request.set_shared(options.shared);
  std::vector<Transfer> transfers;
  if (!options.preset.empty()) request.set_preset(options.preset);
  if (!options.data_folder.empty()) request.set_data_folder(options.data_folder);
  if (!options.config.empty())
    request.set_config(base::InputFile(options.config).read_text(1 << 20));
  if (!options.folder.empty()) {
    transfers = send_folder(client, json, options.folder, request);
    for (const Transfer& transfer : transfers) {
      v1::UploadedFile& file = *request.mutable_uploads()->add_files();
      file.set_name(transfer.name);
      file.set_upload(transfer.upload.name());
    }
  }
  const v1::Model model = create(client, request);
  // The model has the bytes now.
  for (const Transfer& transfer : transfers) {
    if (options.validate_only) break;
    v1::AbortUploadRequest forget;
    forget.set_request_id(make_request_id());
    forget.set_name(transfer.upload.name());
    client.call(client.uploads(), &v1::UploadService::Stub::AbortUpload, forget);
  }
  if (json)
    print_json(model);
  else
    print_model(model);
  return kOk;
}

ExitCode list_models(Client& client, const CommandContext& context) {
  v1::ListModelsRequest request;
  request.set_all(context.all);
  const auto all = client.list(client.models(), &v1::ModelService::Stub::ListModels, request);
  if (context.json) {
    print_json(all);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"model", "kind", "parameters", "weights", "created"}};
  for (const auto& item : all.models())
    rows.push_back({short_name(item.name()), item.architecture(), std::to_string(item.parameters()),
                    item.has_weights() ? bytes_text(item.size_bytes()) : "none",
                    item.create_time()});
  if (context.all) {
    rows[0].push_back("owner");
    for (int i = 0; i < all.models_size(); ++i)
      rows[static_cast<std::size_t>(i) + 1].push_back(owner_text(all.models(i).owner()));
  }
  print_table(rows);
  return kOk;
}

ExitCode show_model(Client& client, bool json, const std::string& name) {
  v1::GetModelRequest request;
  request.set_name(name);
  const auto model =
      client.call(client.models(), &v1::ModelService::Stub::GetModel, request).model();
  if (json)
    print_json(model);
  else
    print_model(model);
  return kOk;
}

ExitCode remove_model(Client& client, bool json, const std::string& name) {
  v1::DeleteModelRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  client.call(client.models(), &v1::ModelService::Stub::DeleteModel, request);
  if (json)
    fmt::print("{{}}\n");
  else
    fmt::print("{}: deleted\n", name);
  return kOk;
}

void add_create_model(CLI::App& models, CommandContext& context) {
  auto* command = models.add_subcommand("create", "Make a model of a folder, a preset or a config");
  auto options = std::make_shared<CreateModelOptions>();
  command->add_option("name", options->name, "What it is to be called: [a-z0-9][a-z0-9_-]{0,62}")
      ->required();
  auto* sources = command->add_option_group("source", "What the model is made of");
  sources->add_option(
      "folder", options->folder,
      "Hugging Face folder on this machine; its config.json, tokenizer and safetensors files are "
      "sent, or what of them the daemon does not have");
  sources->add_option("--preset", options->preset, "Preset of the daemon, trained from scratch");
  sources->add_option("--config", options->config,
                      "config.json on this machine, trained from scratch");
  sources->add_option("--from-data-dir", options->data_folder,
                      "Hugging Face folder below the daemon's data dir, which must not change");
  sources->require_option(1);
  command->add_flag("--validate-only", options->validate_only,
                    "Check it (what is to be sent is sent) and make none");
  command->add_flag("--shared", options->shared, "Let everybody use it; you alone delete it");
  command->footer(
      "Examples:\n"
      "  meshloom model create my-llama ./Llama-3.2-1B\n"
      "  meshloom model create fresh --preset byte_gpt_1m\n"
      "A job names it as run.model.name. After a break the same command goes on.");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return make_model(client, context.json, *options);
    };
  });
}

}  // namespace

void add_model_commands(CLI::App& app, CommandContext& context) {
  auto* models = app.add_subcommand("model", "Make, list and delete the daemon's models");
  models->require_subcommand(1);
  add_create_model(*models, context);
  auto* list_command = models->add_subcommand("list", "All models");
  add_all_flag(*list_command, context);
  list_command->callback([&context] {
    context.action = [&context](Client& client) { return list_models(client, context); };
  });
  const auto with_name = [&](const char* command, const char* help, auto action) {
    auto* added = models->add_subcommand(command, help);
    auto name = std::make_shared<std::string>();
    added->add_option("name", *name, "As list shows it")->required();
    added->callback([&context, name, action] {
      context.action = [&context, name, action](Client& client) {
        return action(client, context.json, *name);
      };
    });
  };
  with_name("show", "One model in full", show_model);
  with_name("delete", "Delete a model that nothing uses", remove_model);
}

}  // namespace meshloom::cli
