// SPDX-License-Identifier: Apache-2.0
// share, usage and audit: who may look at what, how much owners have, and who called what.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "daemon/cli/daemon_commands.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {
namespace {

struct ShareOptions {
  std::string name, with, role = "viewer";
  bool take_back = false;
};

ExitCode share(Client& client, bool json, const ShareOptions& options) {
  v1::ShareObjectRequest request;
  request.set_request_id(make_request_id());
  request.set_name(options.name);
  request.set_with(options.with);
  request.set_role(options.role);
  request.set_take_back(options.take_back);
  const auto shared = client.call(client.access(), &v1::AccessService::Stub::ShareObject, request);
  if (json) {
    print_json(shared);
    return kOk;
  }
  if (shared.shared()) fmt::print("{} is shared with everybody\n", shared.name());
  for (const std::string& name : shared.shared_with())
    fmt::print("{} is shared with {}\n", shared.name(), name);
  if (!shared.shared() && shared.shared_with().empty())
    fmt::print("{} is shared with nobody\n", shared.name());
  return kOk;
}

std::string amount_text(const v1::LimitUse& use, std::int64_t amount) {
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  if (amount == kNoLimit) return "no limit";
  return use.unit() == "bytes" ? bytes_text(amount) : grouped_digits(amount);
}

ExitCode usage(Client& client, bool json) {
  const auto usage =
      client.call(client.access(), &v1::AccessService::Stub::GetUsage, v1::GetUsageRequest());
  if (json) {
    print_json(usage);
    return kOk;
  }
  std::vector<std::vector<std::string>> rows{{"owner", "limit", "used", "most"}};
  for (const v1::OwnerUsage& owner : usage.owners())
    for (const v1::LimitUse& use : owner.uses())
      rows.push_back({owner_text(owner.owner()), use.limit(), amount_text(use, use.used()),
                      amount_text(use, use.most())});
  for (const v1::LimitUse& use : usage.total())
    rows.push_back(
        {"(all)", use.limit(), amount_text(use, use.used()), amount_text(use, use.most())});
  print_table(rows);
  return kOk;
}

ExitCode audit(Client& client, const v1::ReadAuditRequest& request) {
  grpc::ClientContext context;
  client.introduce(context);
  const auto reader = client.access().ReadAudit(&context, request);
  v1::ReadAuditResponse response;
  while (reader->Read(&response))
    for (const std::string& line : response.lines()) fmt::print("{}\n", line);
  if (const grpc::Status status = reader->Finish(); !status.ok()) client.fail(status);
  return kOk;
}

void add_share_command(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("share", "Let somebody look at a job or a run, or use a model or a plan");
  auto options = std::make_shared<ShareOptions>();
  command->add_option("name", options->name, "jobs/NAME, runs/NAME, models/NAME or plans/DIGITS")
      ->required();
  command->add_option("--with", options->with,
                      "Whom, as `meshloom whoami` names them; left out: everybody, of a model or a "
                      "plan");
  command->add_option("--role", options->role, "viewer, which is all that can be given");
  command->add_flag("--take-back", options->take_back, "Share it no more");
  command->footer(
      "Who looks at a job sees its state, metrics and log; no samples and no weights.\n"
      "Example: meshloom share jobs/job-1 --with alice");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return share(client, context.json, *options);
    };
  });
}

}  // namespace

void add_access_commands(CLI::App& app, CommandContext& context) {
  add_share_command(app, context);
  app.add_subcommand("usage",
                     "How much of each limit is taken; of everybody where you are an admin")
      ->callback([&context] {
        context.action = [&context](Client& client) { return usage(client, context.json); };
      });
  auto* audit_command =
      app.add_subcommand("audit", "Of an admin: who called what, one JSON value a line");
  auto request = std::make_shared<v1::ReadAuditRequest>();
  auto object = std::make_shared<std::string>(), who = std::make_shared<std::string>(),
       since = std::make_shared<std::string>();
  audit_command->add_option("--object", *object, "Calls about it alone: jobs/NAME, runs/NAME, ...");
  audit_command->add_option("--who", *who, "Calls of this one alone");
  audit_command->add_option("--since", *since, "Calls from then on, such as 2026-01-31T12:00:00Z");
  audit_command->callback([&context, request, object, who, since] {
    context.action = [request, object, who, since](Client& client) {
      request->set_object(*object);
      request->set_who(*who);
      request->set_since(*since);
      return audit(client, *request);
    };
  });
}

}  // namespace meshloom::cli
