// SPDX-License-Identifier: Apache-2.0
// The keys "tolerance" and "expect" of a case, and the lists of inputs and placements.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// Sets out, grad and param_after. Throws InvalidArgument naming the key.
void read_tolerance(const Json& keys, Case& c);

Expect read_expect(const Json& keys, const planner::MeshLayout& mesh);

/// A list of placements, one per mesh dim, dims as they were written.
planner::Placements read_raw_placements(const Json& list, const planner::MeshLayout& mesh,
                                        const std::string& where);

/// "inputs" of the case: each has a name and one placement per mesh dim, or a value. Throws
/// InvalidArgument.
std::vector<CaseInput> read_inputs(const Case&, const char* key = "inputs");

/// A list of placements for a tensor of `ndim` dims on `mesh`, dims made positive. Throws
/// InvalidArgument naming the text that is wrong.
planner::Placements read_placements(const Json&, const planner::MeshLayout& mesh, int ndim,
                                    const std::string& where);

}  // namespace meshloom::conformance
