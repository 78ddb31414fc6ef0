// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_command.h"

namespace meshloom::control {
namespace {

const google::protobuf::FieldDescriptor* verb_of(const v1::RankCommand& command) {
  const auto* oneof = v1::RankCommand::descriptor()->FindOneofByName("verb");
  return command.GetReflection()->GetOneofFieldDescriptor(command, oneof);
}

}  // namespace

std::string verb_name(const v1::RankCommand& command) {
  // As clients and jobs know them.
  switch (command.verb_case()) {
    case v1::RankCommand::kLoss: return command.loss().backward() ? "forward_backward" : "forward";
    case v1::RankCommand::kApplyGradients: return "optim_step";
    case v1::RankCommand::kWriteState: return "save_state";
    default: break;
  }
  const auto* field = verb_of(command);
  return field ? field->name() : "nothing";
}

std::string run_of(const v1::RankCommand& command) {
  const auto* field = verb_of(command);
  if (!field) return {};
  const google::protobuf::Message& verb = command.GetReflection()->GetMessage(command, field);
  const auto* run = verb.GetDescriptor()->FindFieldByName("run");
  return run ? verb.GetReflection()->GetString(verb, run) : std::string();
}

}  // namespace meshloom::control
