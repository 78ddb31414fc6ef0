// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/operation_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/enum_names.h"
#include "daemon/base/states.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/transfers/transfer_display.h"

namespace meshloom::cli {
namespace {

std::string enum_name(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  return value ? base::enum_spelling(*value) : std::to_string(number);
}

/// One stream of what comes behind the bytes that are there.
grpc::Status read_pieces(Client& client, const std::string& operation, TransferDisplay& display,
                         std::string* bytes) {
  grpc::ClientContext context;
  client.introduce(context);
  v1::ReadResultRequest request;
  request.set_name(operation);
  request.set_offset(static_cast<std::int64_t>(bytes->size()));
  const auto stream = client.operations().ReadResult(&context, request);
  for (v1::ReadResultResponse piece; stream->Read(&piece);) {
    bytes->append(piece.data());
    display.show(static_cast<std::int64_t>(bytes->size()));
  }
  return stream->Finish();
}

}  // namespace

std::string state_name(v1::RunState state) { return enum_name(*v1::RunState_descriptor(), state); }

std::string state_name(v1::OperationState state) {
  return enum_name(*v1::OperationState_descriptor(), state);
}

std::string state_name(v1::WeightsStorage storage) {
  return enum_name(*v1::WeightsStorage_descriptor(), storage);
}

void check_succeeded(const v1::Operation& operation) {
  if (operation.state() == v1::OPERATION_STATE_SUCCEEDED) return;
  throw CliError(operation.state() == v1::OPERATION_STATE_CANCELLED ? kCancelled : kFailed,
                 fmt::format("{}: {}", operation.name(), operation.error().message()),
                 operation.error());
}

void print_operation(const v1::Operation& operation) {
  print_line("operation", operation.name());
  print_line("verb", operation.verb());
  print_line("state", state_name(operation.state()));
  print_line("waits for", operation.waits_for());
  print_line("taken", duration_text(operation.seconds()));
  print_line("error", operation.error().message());
  print_line("reason", operation.error().info().reason());
  const v1::VerbResult& result = operation.result();
  if (result.has_loss()) {
    print_line("data", std::to_string(result.loss().outputs_size()));
    for (const auto& [name, value] : result.loss().metrics())
      fmt::print("{:<12}{:.6g}\n", name, value);
  }
  if (result.has_optim_step()) {
    const v1::OptimStepOutput& step = result.optim_step();
    print_line("step", std::to_string(step.step()));
    print_line("loss", fmt::format("{:.6g}", step.loss()));
    print_line("grad norm", fmt::format("{:.6g}", step.grad_norm()));
  }
  if (result.has_saved_state()) {
    print_line("state", result.saved_state().name());
    print_line("step", std::to_string(result.saved_state().step()));
  }
  if (result.has_saved_weights()) {
    print_line("weights", result.saved_weights().name());
    print_line("folder", result.saved_weights().folder());
  }
  if (result.has_sample())
    print_line("sequences", std::to_string(result.sample().sequences_size()));
  if (result.has_parameters()) {
    std::vector<std::vector<std::string>> rows{{"parameter", "shape", "dtype", "size"}};
    for (const v1::ParameterValue& value : result.parameters().parameters())
      rows.push_back({value.name(), fmt::format("[{}]", fmt::join(value.shape(), ", ")),
                      value.dtype(), bytes_text(static_cast<std::int64_t>(value.data().size()))});
    print_table(rows);
  }
  if (operation.result_bytes() > 0) print_line("result", bytes_text(operation.result_bytes()));
}

void complete_result(Client& client, bool quiet, v1::Operation* operation) {
  const std::int64_t size = operation->result_bytes();
  if (size == 0 || operation->result().result_case() != v1::VerbResult::RESULT_NOT_SET) return;
  constexpr int kAttempts = 5;  // in a row that bring nothing
  TransferDisplay display(quiet, "received");
  display.begin(operation->name(), size, 0);
  std::string bytes;
  for (int attempt = 1;;) {
    const std::size_t before = bytes.size();
    const grpc::Status status = read_pieces(client, operation->name(), display, &bytes);
    if (status.ok()) break;
    attempt = bytes.size() > before ? 1 : attempt + 1;
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || attempt > kAttempts)
      client.fail(status);
    client.wait_for_connection(std::chrono::milliseconds(500 * attempt));
  }
  display.end();
  if (!operation->mutable_result()->ParseFromString(bytes))
    throw CliError(kFailed, fmt::format("{}: its result of {} bytes cannot be read",
                                        operation->name(), bytes.size()));
}

v1::Operation wait_for_operation(Client& client, bool quiet, const std::string& name) {
  v1::WaitOperationRequest request;
  request.set_name(name);
  request.set_timeout_ms(3'000);  // then whoever waits is told why
  v1::Operation operation;
  while (true) {
    operation =
        client.call(client.operations(), &v1::OperationService::Stub::WaitOperation, request)
            .operation();
    if (base::is_final(operation.state())) break;
    if (!quiet && !operation.waits_for().empty())
      fmt::print(stderr, "{} waits for {}\n", operation.verb(), operation.waits_for());
    request.set_timeout_ms(20'000);
  }
  check_succeeded(operation);
  complete_result(client, quiet, &operation);
  return operation;
}

}  // namespace meshloom::cli
