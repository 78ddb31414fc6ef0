// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {
namespace {

ExitCode capabilities(Client& client, bool json) {
  const auto can = client.call(client.workers(), &v1::WorkerService::Stub::GetCapabilities,
                               v1::GetCapabilitiesRequest());
  if (json) {
    print_json(can);
    return kOk;
  }
  const auto line = [](const char* key, const auto& names) {
    print_line(key, fmt::format("{}", fmt::join(names, ", ")));
  };
  print_line("version", can.version());
  print_line("ranks", fmt::format("{}, {} threads each", can.ranks(), can.threads()));
  line("devices", can.devices());
  line("cpus", can.cpus());
  line("models", can.architectures());
  line("presets", can.presets());
  std::vector<std::string> losses;
  for (const v1::LossCapability& loss : can.losses())
    losses.push_back(loss.config_keys().empty() ? loss.name()
                                                : fmt::format("{} ({})", loss.name(),
                                                              fmt::join(loss.config_keys(), ", ")));
  line("losses", losses);
  line("optimizers", can.optimizers());
  line("schedules", can.lr_decays());
  line("dtypes", can.dtypes());
  line("exports", can.export_dtypes());
  line("data", can.data_formats());
  line("tokenizers", can.tokenizer_files());
  line("clusters", can.clusters());
  for (const v1::Limit& limit : can.limits())
    fmt::print("  {:<26}{}\n", limit.name(),
               limit.unit() == "bytes" ? bytes_text(limit.value())
                                       : fmt::format("{} {}", limit.value(), limit.unit()));
  return kOk;
}

}  // namespace

void add_capabilities_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "capabilities", "What the daemon offers: models, losses, dtypes, devices, limits");
  command->callback([&context] {
    context.action = [&context](Client& client) { return capabilities(client, context.json); };
  });
}

}  // namespace meshloom::cli
