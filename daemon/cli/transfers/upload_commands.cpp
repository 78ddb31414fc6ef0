// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/data/data_import.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/transfers/upload.h"
#include "daemon/cli/transfers/upload_commands.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

struct SendOptions {
  std::vector<std::string> files;
  std::optional<std::string> data;  ///< where below the daemon's data dir they are to lie
  bool overwrite = false;
};

void forget_upload(Client& client, const std::string& name) {
  v1::AbortUploadRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  client.call(client.uploads(), &v1::UploadService::Stub::AbortUpload, request);
}

/// A file to send.
struct LocalFile {
  std::string path;
  std::string name;  ///< below the folder that it is to lie in: "a.txt", "sub/a.txt"
};

/// A path that ends in a slash is a folder, in which the file keeps its name.
DataImport import_of(const LocalFile& file, const SendOptions& options) {
  DataImport asked{{}, *options.data, options.overwrite};
  if (asked.path.ends_with('/')) asked.path += file.name;
  return asked;
}

/// The files of a folder and of those below it, by name; hidden ones are left out.
std::vector<LocalFile> files_of(const fs::path& folder) {
  constexpr std::size_t kMostFiles = 10'000;
  const fs::path whole = fs::canonical(folder);
  std::vector<LocalFile> files;
  for (auto entry = fs::recursive_directory_iterator(folder);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path& path = entry->path();
    if (path.filename().native().front() == '.') {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file()) continue;
    const fs::path place = fs::canonical(path).lexically_relative(whole);
    if (place.empty() || *place.begin() == "..")
      throw CliError(kUsage, fmt::format("{} is a link that leads out of {}; name the file itself",
                                         path.string(), folder.string()));
    files.push_back({path.string(), path.lexically_relative(folder).string()});
    if (files.size() > kMostFiles)
      throw CliError(kUsage, fmt::format("{} has more than {} files; send an archive's contents in "
                                         "parts, or fewer and larger files",
                                         folder.string(), kMostFiles));
  }
  std::sort(files.begin(), files.end(),
            [](const LocalFile& a, const LocalFile& b) { return a.name < b.name; });
  if (files.empty())
    throw CliError(kUsage, fmt::format("{}: there is no file in this folder", folder.string()));
  return files;
}

bool names_a_folder(const std::string& path) {
  std::error_code unknown;
  return fs::is_directory(path, unknown);
}

std::vector<LocalFile> expanded(const std::vector<std::string>& named) {
  std::vector<LocalFile> files;
  for (const std::string& path : named) {
    if (names_a_folder(path)) {
      const std::vector<LocalFile> inside = files_of(path);
      files.insert(files.end(), inside.begin(), inside.end());
    } else {
      files.push_back({path, fs::path(path).filename().string()});
    }
  }
  return files;
}

/// Makes a file of data of an upload, which is forgotten then, unless it was kept before.
ExitCode import_sent(Client& client, bool json, const DataImport& asked, bool keep) {
  const std::string kept = fmt::format(
      "the daemon keeps what was sent as {}: meshloom data import "
      "{} PATH makes a file of it",
      asked.upload, asked.upload);
  std::optional<v1::ImportedFile> file;
  try {
    file = import_upload(client, json, asked);
  } catch (const CliError& error) {
    if (error.details().info().reason() == "UPLOAD_NOT_FOUND") throw;
    throw CliError(error.code(), fmt::format("{}; {}", error.what(), kept), error.details());
  }
  if (!file) {
    fmt::print(stderr, "{}\n", kept);
    return kInterrupted;
  }
  if (json)
    print_json_line(*file);
  else
    print_imported(*file);
  if (keep) return kOk;
  // The bytes are there once more. That they stay does no harm.
  try {
    forget_upload(client, asked.upload);
  } catch (const CliError& error) {
    fmt::print(stderr, "{} stays: {}\n", asked.upload, error.what());
  }
  return kOk;
}

/// Before anything is sent: most of what can be wrong with a path is known then. False after
/// Ctrl-C.
bool check_imports(Client& client, const SendOptions& options,
                   const std::vector<LocalFile>& files) {
  // The daemon would take equal paths one by one, the second in place of the first.
  std::map<std::string, std::string> known;
  for (const LocalFile& file : files) {
    const std::string path = import_of(file, options).path;
    const auto [first, is_new] = known.emplace(path, file.path);
    if (!is_new)
      throw CliError(kUsage,
                     fmt::format("{} and {} would both be {}", first->second, file.path, path));
  }
  return std::all_of(files.begin(), files.end(), [&](const LocalFile& file) {
    return check_import(client, import_of(file, options));
  });
}

ExitCode send_files(Client& client, bool json, SendOptions options) {
  const std::vector<LocalFile> files = expanded(options.files);
  const bool several =
      files.size() > 1 || std::any_of(options.files.begin(), options.files.end(), names_a_folder);
  if (options.data && several && !options.data->ends_with('/')) *options.data += '/';
  if (options.data && !check_imports(client, options, files)) return kInterrupted;
  Uploader uploader(client, json);
  for (const LocalFile& file : files) {
    Transfer transfer = options.data ? uploader.begin(file.path, allowed_upload_name(file.path))
                                     : uploader.begin(file.path);
    uploader.finish(transfer);
    if (options.data) {
      DataImport asked = import_of(file, options);
      asked.upload = transfer.upload.name();
      const ExitCode code = import_sent(client, json, asked, transfer.was_complete);
      if (code != kOk) return code;
    } else if (json) {
      print_json_line(transfer.upload);
    } else {
      fmt::print("{}\n", short_name(transfer.upload.name()));
    }
  }
  return kOk;
}

ExitCode list_uploads(Client& client, const CommandContext& context) {
  v1::ListUploadsRequest request;
  request.set_all(context.all);
  const auto all = client.list(client.uploads(), &v1::UploadService::Stub::ListUploads, request);
  if (context.json) {
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
  if (context.all) {
    rows[0].push_back("owner");
    for (int i = 0; i < all.uploads_size(); ++i)
      rows[static_cast<std::size_t>(i) + 1].push_back(owner_text(all.uploads(i).owner()));
  }
  print_table(rows);
  return kOk;
}

ExitCode abort_upload(Client& client, bool json, const std::string& name) {
  forget_upload(client, name);
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
  auto options = std::make_shared<SendOptions>();
  upload->add_option("files", options->files,
                     "Files to send; of a folder all files in it and below it, but hidden ones");
  auto* data = upload->add_option(
      "--data", options->data,
      "Make a file that jobs train on of what was sent, at this path below the daemon's "
      "--data-dir, and keep no new upload; a path that ends in / is a folder, and so is that of "
      "several files. Folders that are not there are made");
  upload->add_flag("--overwrite", options->overwrite, "Takes the place of a file that is there")
      ->needs(data);
  upload->require_subcommand(0, 1);
  upload->footer(
      "Examples:\n"
      "  meshloom upload tokens.bin\n"
      "  meshloom upload corpus.txt --data corpus.txt\n"
      "  meshloom upload corpus --data corpus/\n"
      "  meshloom upload list\n"
      "A file that is called list or abort: meshloom upload ./list");
  upload->callback([&context, options, upload] {
    if (!upload->get_subcommands().empty()) return;
    if (options->files.empty())
      throw CLI::RequiredError("files to send are needed, or a command: list, abort",
                               CLI::ExitCodes::RequiredError);
    if (options->data && options->data->find_last_not_of('/') == std::string::npos)
      throw CLI::ValidationError("--data", "is empty, expected a path below the daemon's data dir");
    context.action = [&context, options](Client& client) {
      return send_files(client, context.json, *options);
    };
  });
  auto* list_command = upload->add_subcommand("list", "This client's uploads");
  add_all_flag(*list_command, context);
  list_command->callback([&context] {
    context.action = [&context](Client& client) { return list_uploads(client, context); };
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
