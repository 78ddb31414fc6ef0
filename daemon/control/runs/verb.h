// SPDX-License-Identifier: Apache-2.0
// Verb: an ordered verb of a run as its client asked for it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "daemon/control/host/memory_units.h"
#include "v1/run_service.pb.h"

namespace meshloom::control {

struct Verb {
  using Request = std::variant<v1::ForwardBackwardRequest, v1::ForwardRequest, v1::OptimStepRequest,
                               v1::SaveStateRequest, v1::LoadStateRequest, v1::SaveWeightsRequest,
                               v1::GetParametersRequest, v1::SetParametersRequest, v1::SkipRequest>;
  Request request;          ///< of one that was refused only what number_of leaves
  std::string operation;    ///< its name; empty: refused when it came
  MemoryUnits memory = {};  ///< that of its data, while it waits
};

const v1::VerbId& id_of(const Verb::Request& request);
/// "forward_backward", ...
const char* name_of(const Verb::Request& request);
/// Of all that a client has said, so that a repeat is told from another verb.
std::string digest_of(const Verb::Request& request);
/// As it lies in memory.
std::size_t bytes_of(const Verb::Request& request);
/// The same verb with its number and nothing else: what a refused one leaves in the order of verbs.
Verb::Request number_of(const Verb::Request& request);
/// If it is not carried out, gradients are missing from the next optimizer step.
bool adds_gradients(const Verb::Request& request);
/// The ranks may leave it between two micro batches.
bool may_be_left(const Verb::Request& request);
/// It looks at files that verbs before it may write: it begins once they have ended.
bool reads_files(const Verb::Request& request);
/// The upload that holds its data; empty: it has them itself.
std::string upload_of(const Verb::Request& request);
/// What needs no run to be checked. Throws InvalidArgument with the field.
void check_verb(const Verb::Request& request);

}  // namespace meshloom::control
