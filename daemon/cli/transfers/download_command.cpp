// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/transfers/download_command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/output/output.h"
#include "daemon/cli/transfers/download.h"

namespace meshloom::cli {
namespace {

ExitCode download(Client& client, bool json, DownloadOptions options) {
  options.quiet = json;
  const DownloadResult result = download_files(client, options);
  if (json) {
    const nlohmann::ordered_json copied = {{"name", options.name},
                                           {"files", result.files},
                                           {"size_bytes", result.bytes},
                                           {"compared", result.compared}};
    fmt::print("{}\n", copied.dump());
  } else {
    fmt::print("{}: {} files, {}, {}, in {}\n", options.name, result.files,
               bytes_text(result.bytes),
               result.compared ? "digests right" : "no digests to compare with", options.folder);
  }
  return kOk;
}

}  // namespace

void add_download(CLI::App& command, CommandContext& context, const char* name_text) {
  auto options = std::make_shared<DownloadOptions>();
  command.add_option("name", options->name, name_text)->required();
  command.add_option("folder", options->folder, "Folder to make")->required();
  command.add_flag("--resume", options->resume,
                   "Go on with FOLDER.part, which a download of the same files has left behind");
  command.callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return download(client, context.json, *options);
    };
  });
}

}  // namespace meshloom::cli
