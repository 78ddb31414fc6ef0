// SPDX-License-Identifier: Apache-2.0
// Facts tell what a job trains, in a few lines: data, model, batch, mesh and plan; and its time.
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct Fact {
  const char* name;
  std::string text;
};

/// Returns the facts of a job whose resolved config is there; else the time alone. `parameters`: of
/// its model, 0 if that is not known. `now`: seconds since 1970.
std::vector<Fact> job_facts(const v1::Job& job, std::int64_t parameters, std::int64_t now);

/// Returns whether the line about data says how many tokens they are. Those of text are counted
/// when the job begins.
bool tokens_are_known(const v1::Job& job);
/// Prints the line about data alone.
void print_data_fact(const v1::Job& job);

/// Prints the lines for people, with what the daemon and the clock say.
void print_facts(Client& client, const v1::Job& job);

}  // namespace meshloom::cli
