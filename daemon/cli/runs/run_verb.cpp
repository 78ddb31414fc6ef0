// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/run_verb.h"

#include "daemon/cli/output/output.h"
#include "daemon/cli/transfers/upload.h"

namespace meshloom::cli {

void add_target(CLI::App& command, CommandContext& context, std::string& run) {
  command.add_option("run", run, "The run")->required();
  add_needed_token(command, context);
}

v1::Run get_run(Client& client, const std::string& name) {
  v1::GetRunRequest request;
  request.set_name(name);
  return client.call(client.runs(), &v1::RunService::Stub::GetRun, request).run();
}

v1::VerbId next_verb(Client& client, const std::string& run) {
  const v1::Run now = get_run(client, run);
  v1::VerbId id;
  id.set_run(now.name());
  id.set_epoch(now.epoch());
  id.set_seq(now.next_seq());
  return id;
}

std::string upload_if_large(Client& client, bool quiet, const std::string& run,
                            const google::protobuf::Message& data) {
  // The daemon takes requests of 16 MiB; what else stands in one is small.
  constexpr std::size_t kMostInRequest = 12 << 20;
  if (data.ByteSizeLong() <= kMostInRequest) return "";
  Uploader uploader(client, quiet);
  Transfer transfer = uploader.begin({run, data.GetDescriptor()->name(), data.SerializeAsString()});
  uploader.finish(transfer);
  return transfer.upload.name();
}

ExitCode show_ended(bool json, const v1::Operation& operation) {
  if (json)
    print_json(operation);
  else
    print_operation(operation);
  return kOk;
}

std::string verb_footer(const std::string& text) {
  return "It takes the run's next number: a client that drives the run must not send verbs "
         "meanwhile.\n" +
         text;
}

}  // namespace meshloom::cli
