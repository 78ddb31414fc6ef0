// SPDX-License-Identifier: Apache-2.0
// Parameters of a run, by name: shown, written to a file, and set from one.
#include <memory>
#include <optional>

#include "daemon/cli/runs/message_file.h"
#include "daemon/cli/runs/run_commands.h"
#include "daemon/cli/runs/run_verb.h"

namespace meshloom::cli {
namespace {

struct GetParametersOptions {
  std::string run;
  std::vector<std::string> names;
  std::string out;
};

struct SetParametersOptions {
  std::string run;
  std::string file;
};

ExitCode get_parameters(Client& client, bool json, const GetParametersOptions& options) {
  std::optional<MessageOutput> out;
  if (!options.out.empty()) out.emplace(options.out);
  v1::GetParametersRequest request;
  request.mutable_names()->Add(options.names.begin(), options.names.end());
  const v1::Operation operation = carry_out(
      client, json, options.run, &v1::RunService::Stub::GetParameters, std::move(request));
  if (out) out->write(operation.result().parameters());
  return out && out->is_standard_output() ? kOk : show_ended(json, operation);
}

ExitCode set_parameters(Client& client, bool json, const SetParametersOptions& options) {
  v1::ParameterValues values;
  read_message_file(options.file, &values);
  if (values.parameters().empty())
    throw CliError(kUsage, options.file + ": there are no parameters in it");
  v1::SetParametersRequest request;
  request.set_upload(upload_if_large(client, json, options.run, values));
  if (request.upload().empty()) request.mutable_parameters()->Swap(values.mutable_parameters());
  return show_ended(json, carry_out(client, json, options.run, &v1::RunService::Stub::SetParameters,
                                    std::move(request)));
}

void add_get_parameters(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand(
      "get-parameters", "Parameters by name: their shapes and dtypes, and their values in a file");
  auto options = std::make_shared<GetParametersOptions>();
  add_target(*command, context, options->run);
  command
      ->add_option("names", options->names,
                   "As in the model's Hugging Face folder, such as transformer.wte.weight")
      ->required();
  command->add_option("--out", options->out,
                      "File for the values, which set-parameters reads: ParameterValues of "
                      "proto/v1/step.proto in JSON, the bytes in base64; -: standard output, and "
                      "nothing else there");
  command->footer(
      verb_footer("Without --out the values are not shown, with --json neither.\n"
                  "Example: meshloom run get-parameters my-run transformer.ln_f.weight --out "
                  "norm.json"));
  set_action(*command, context, options, &get_parameters);
}

void add_set_parameters(CLI::App& runs, CommandContext& context) {
  auto* command = runs.add_subcommand("set-parameters",
                                      "Write parameters; moments stay, and gradients are dropped");
  auto options = std::make_shared<SetParametersOptions>();
  add_target(*command, context, options->run);
  command
      ->add_option("file", options->file,
                   "As get-parameters --out writes it; - reads standard input")
      ->required();
  command->footer(
      verb_footer("All values are checked before any is written.\n"
                  "Example: meshloom run set-parameters my-run norm.json"));
  set_action(*command, context, options, &set_parameters);
}

}  // namespace

void add_run_parameters(CLI::App& runs, CommandContext& context) {
  add_get_parameters(runs, context);
  add_set_parameters(runs, context);
}

}  // namespace meshloom::cli
