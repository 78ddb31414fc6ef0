// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/states.h"

#include <algorithm>

#include "daemon/base/enum_names.h"

namespace meshloom::base {
namespace {

constexpr const char* kClient = "client";
constexpr const char* kDriver = "driver";    // of jobs
constexpr const char* kSession = "session";  // of a run
constexpr const char* kRestart = "restart";  // of the daemon
constexpr const char* kVerb = "verb";

const StateTable& jobs() {
  using namespace v1;
  static const StateTable table{
      "job",
      JobState_descriptor(),
      {
          {JOB_STATE_QUEUED, JOB_STATE_PREPARING, kDriver, "it has the ranks"},
          {JOB_STATE_QUEUED, JOB_STATE_HELD, kDriver,
           "it needs other ranks or devices; --no-resume"},
          {JOB_STATE_QUEUED, JOB_STATE_PAUSED, kClient, "pause"},
          {JOB_STATE_QUEUED, JOB_STATE_CANCELLED, kClient, "cancel"},
          {JOB_STATE_QUEUED, JOB_STATE_FAILED, kDriver, "its model or data are gone"},
          {JOB_STATE_PREPARING, JOB_STATE_RUNNING, kDriver, "the ranks have made it"},
          {JOB_STATE_PREPARING, JOB_STATE_PAUSING, kClient, "pause, drain"},
          {JOB_STATE_PREPARING, JOB_STATE_CANCELLING, kClient, "cancel"},
          {JOB_STATE_PREPARING, JOB_STATE_RECOVERING, kDriver, "stop, lost rank, restart"},
          {JOB_STATE_PREPARING, JOB_STATE_FAILED, kDriver, "the ranks cannot make it"},
          {JOB_STATE_RUNNING, JOB_STATE_PAUSING, kClient, "pause, drain"},
          {JOB_STATE_RUNNING, JOB_STATE_CANCELLING, kClient, "cancel; training.watch"},
          {JOB_STATE_RUNNING, JOB_STATE_RECOVERING, kDriver, "stop, lost rank, restart"},
          {JOB_STATE_RUNNING, JOB_STATE_SUCCEEDED, kDriver,
           "all steps are done, or its step limit"},
          {JOB_STATE_RUNNING, JOB_STATE_FAILED, kDriver, "a step failed, or its time limit"},
          {JOB_STATE_PAUSING, JOB_STATE_PAUSED, kDriver, "saved; restart"},
          {JOB_STATE_PAUSING, JOB_STATE_RUNNING, kDriver, "it could not be saved, and goes on"},
          {JOB_STATE_PAUSING, JOB_STATE_CANCELLING, kClient, "cancel"},
          {JOB_STATE_PAUSING, JOB_STATE_SUCCEEDED, kDriver, "that was its last step"},
          {JOB_STATE_PAUSING, JOB_STATE_FAILED, kDriver, "a step failed"},
          {JOB_STATE_PAUSED, JOB_STATE_QUEUED, kClient, "resume, undrain"},
          {JOB_STATE_PAUSED, JOB_STATE_CANCELLED, kClient, "cancel"},
          {JOB_STATE_RECOVERING, JOB_STATE_PREPARING, kDriver, "it has the ranks"},
          {JOB_STATE_RECOVERING, JOB_STATE_HELD, kDriver,
           "it needs other ranks or devices; crash loop; --no-resume"},
          {JOB_STATE_RECOVERING, JOB_STATE_PAUSED, kClient, "pause"},
          {JOB_STATE_RECOVERING, JOB_STATE_CANCELLED, kClient, "cancel"},
          {JOB_STATE_RECOVERING, JOB_STATE_FAILED, kDriver, "its model or data are gone"},
          {JOB_STATE_HELD, JOB_STATE_QUEUED, kClient, "release before its first attempt; restart"},
          {JOB_STATE_HELD, JOB_STATE_RECOVERING, kClient, "release; restart"},
          {JOB_STATE_HELD, JOB_STATE_PAUSED, kClient, "pause"},
          {JOB_STATE_HELD, JOB_STATE_CANCELLED, kClient, "cancel"},
          {JOB_STATE_CANCELLING, JOB_STATE_CANCELLED, kDriver, "saved; restart"},
          {JOB_STATE_CANCELLING, JOB_STATE_SUCCEEDED, kDriver, "that was its last step"},
          {JOB_STATE_CANCELLING, JOB_STATE_FAILED, kDriver, "a step failed"},
      }};
  return table;
}

const StateTable& runs() {
  using namespace v1;
  static const StateTable table{
      "run",
      RunState_descriptor(),
      {
          {RUN_STATE_QUEUED, RUN_STATE_CREATING, kSession, "it has the ranks"},
          {RUN_STATE_QUEUED, RUN_STATE_CLOSED, kClient, "close; its lease has ended"},
          {RUN_STATE_CREATING, RUN_STATE_READY, kSession, "the ranks have made it"},
          {RUN_STATE_CREATING, RUN_STATE_CLOSING, kClient, "close"},
          {RUN_STATE_CREATING, RUN_STATE_CLOSED, kClient, "close"},
          {RUN_STATE_CREATING, RUN_STATE_FAILED, kSession, "the ranks cannot make it"},
          {RUN_STATE_CREATING, RUN_STATE_RECOVERING, kRestart, "the next epoch"},
          {RUN_STATE_READY, RUN_STATE_RECOVERING, kSession, "its weights are lost; restart"},
          {RUN_STATE_READY, RUN_STATE_CLOSING, kClient, "close; its lease has ended; drain"},
          {RUN_STATE_READY, RUN_STATE_CLOSED, kClient, "close; its lease has ended; drain"},
          {RUN_STATE_RECOVERING, RUN_STATE_READY, kSession, "the ranks have made it anew"},
          {RUN_STATE_RECOVERING, RUN_STATE_CLOSING, kClient, "close; its lease has ended; drain"},
          {RUN_STATE_RECOVERING, RUN_STATE_CLOSED, kClient, "close; its lease has ended; drain"},
          {RUN_STATE_RECOVERING, RUN_STATE_FAILED, kSession, "the ranks cannot make it anew"},
          {RUN_STATE_CLOSING, RUN_STATE_CLOSED, kSession, "the ranks are free; restart"},
      }};
  return table;
}

const StateTable& operations() {
  using namespace v1;
  static const StateTable table{
      "operation",
      OperationState_descriptor(),
      {
          {OPERATION_STATE_WAITING, OPERATION_STATE_RUNNING, kSession, "its turn has come"},
          {OPERATION_STATE_WAITING, OPERATION_STATE_SUCCEEDED, kVerb, "there was nothing to do"},
          {OPERATION_STATE_WAITING, OPERATION_STATE_FAILED, kSession,
           "refused; a number before it is missing; its run is closed or lost"},
          {OPERATION_STATE_WAITING, OPERATION_STATE_CANCELLED, kClient, "cancel"},
          {OPERATION_STATE_RUNNING, OPERATION_STATE_SUCCEEDED, kVerb, "done"},
          {OPERATION_STATE_RUNNING, OPERATION_STATE_FAILED, kVerb, "failed; its run is lost"},
          {OPERATION_STATE_RUNNING, OPERATION_STATE_CANCELLED, kClient, "cancel, of a sample"},
      }};
  return table;
}

std::string upper_name(const StateTable& table, int state) {
  std::string name = table.name(state);
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return name;
}

}  // namespace

bool StateTable::has(int from, int to) const {
  return std::any_of(moves.begin(), moves.end(),
                     [&](const StateMove& move) { return move.from == from && move.to == to; });
}

bool StateTable::leaves(int from) const {
  return std::any_of(moves.begin(), moves.end(),
                     [&](const StateMove& move) { return move.from == from; });
}

bool StateTable::reaches(int to) const {
  return std::any_of(moves.begin(), moves.end(),
                     [&](const StateMove& move) { return move.to == to; });
}

std::string StateTable::name(int state) const {
  const auto* value = states->FindValueByNumber(state);
  return value ? enum_spelling(*value) : std::to_string(state);
}

const std::vector<const StateTable*>& state_tables() {
  static const std::vector<const StateTable*> all{&jobs(), &runs(), &operations()};
  return all;
}

template <>
const StateTable& table_of<v1::JobState>() {
  return jobs();
}
template <>
const StateTable& table_of<v1::RunState>() {
  return runs();
}
template <>
const StateTable& table_of<v1::OperationState>() {
  return operations();
}

void check_move(const StateTable& table, const std::string& name, int from, int to) {
  if (table.has(from, to)) return;
  throw InternalError(fmt::format("{} {} cannot move from {} to {}", table.resource, name,
                                  upper_name(table, from), upper_name(table, to)),
                      "ILLEGAL_MOVE",
                      {{"name", name}, {"from", table.name(from)}, {"to", table.name(to)}});
}

std::string states_markdown(int level) {
  std::string text;
  for (const StateTable* table : state_tables()) {
    text += fmt::format("{}{} {}s\n\n| from | to | by | when |\n| --- | --- | --- | --- |\n",
                        text.empty() ? "" : "\n", std::string(static_cast<std::size_t>(level), '#'),
                        table->resource);
    for (const StateMove& move : table->moves)
      text += fmt::format("| {} | {} | {} | {} |\n", upper_name(*table, move.from),
                          upper_name(*table, move.to), move.by, move.when);
  }
  return text;
}

}  // namespace meshloom::base
