// SPDX-License-Identifier: Apache-2.0
// The lives of jobs, runs and operations: their states, and every move between them. What changes a
// state goes through move_to().
#pragma once

#include <google/protobuf/generated_enum_reflection.h>

#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "v1/job.pb.h"
#include "v1/run.pb.h"

namespace meshloom::base {

/// StateMove is one legal move. Numbers are values of the table's enum.
struct StateMove {
  int from = 0;
  int to = 0;
  const char* by;    ///< who makes it
  const char* when;  ///< and why
};

/// StateTable is the life of one kind of resource. It begins in the first state of its first move;
/// a state to which a move goes, and that none leaves, is final.
struct StateTable {
  const char* resource;  ///< "job"
  const google::protobuf::EnumDescriptor* states;
  std::vector<StateMove> moves;

  bool has(int from, int to) const;
  bool leaves(int from) const;
  bool reaches(int to) const;
  /// Returns "running".
  std::string name(int state) const;
};

/// Returns the tables of jobs, runs and operations.
const std::vector<const StateTable*>& state_tables();

template <typename State>
const StateTable& table_of();
template <>
const StateTable& table_of<v1::JobState>();
template <>
const StateTable& table_of<v1::RunState>();
template <>
const StateTable& table_of<v1::OperationState>();

/// Tells whether a state is final: SUCCEEDED, FAILED and CANCELLED, and CLOSED for runs. Not
/// UNSPECIFIED, and not what another version has beside these: whoever waits for the end goes on.
template <typename State>
bool is_final(State state) {
  const StateTable& table = table_of<State>();
  return table.reaches(state) && !table.leaves(state);
}

template <typename State>
bool can_move(State from, State to) {
  return table_of<State>().has(from, to);
}

/// Throws InternalError (ILLEGAL_MOVE) unless the table has the move.
void check_move(const StateTable& table, const std::string& name, int from, int to);

/// Changes the state of a job, run or operation; to stay where it is, is no move. Throws
/// InternalError (ILLEGAL_MOVE) and changes nothing if the table does not have the move.
template <typename Resource, typename State>
void move_to(Resource& resource, State state) {
  if (resource.state() == state) return;
  check_move(table_of<State>(), resource.name(), resource.state(), state);
  resource.set_state(state);
}

/// Writes all tables in Markdown, one after the other, each below a heading of level `level`.
std::string states_markdown(int level);

}  // namespace meshloom::base
