// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "daemon/base/field_error.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_key.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLargestMetadata = 64 << 10;
constexpr std::int64_t kLongestTtl = std::int64_t{10} * 366 * 24 * 3600;

void check_folder_name(const std::string& field, const std::string& name) {
  if (!is_folder_name(name))
    base::refuse_field(field, "\"{}\" is not a name, expected [A-Za-z0-9][A-Za-z0-9._-]{{0,62}}",
                       name.substr(0, 80));
}

/// Data come in the request or in an upload, not in both.
void check_upload(const std::string& upload, bool data, const char* what) {
  if (!upload.empty() && data)
    base::refuse_field("upload", "\"{}\" is given beside {}: a verb takes one of the two",
                       upload.substr(0, 80), what);
}

void check_one(const v1::ForwardBackwardRequest& request) {
  check_upload(request.upload(), request.has_batch(), "batch");
}
void check_one(const v1::ForwardRequest& request) {
  check_upload(request.upload(), request.has_batch(), "batch");
}
void check_one(const v1::OptimStepRequest&) {}
void check_one(const v1::SetParametersRequest& request) {
  check_upload(request.upload(), request.parameters_size() > 0, "parameters");
}
void check_one(const v1::GetParametersRequest& request) {
  if (request.names().empty()) base::refuse_field("names", "is empty: name the parameters");
}
void check_one(const v1::SaveStateRequest& request) {
  check_folder_name("name", request.name());
  std::size_t bytes = 0;
  for (const auto& [key, value] : request.user_metadata()) bytes += key.size() + value.size();
  if (bytes > kLargestMetadata)
    base::refuse_field("user_metadata", "has {} bytes, at most {} are kept", bytes,
                       kLargestMetadata);
  if (request.ttl_seconds() < 0 || request.ttl_seconds() > kLongestTtl)
    base::refuse_field("ttl_seconds", "must be in [0, {}], got {}", kLongestTtl,
                       request.ttl_seconds());
}
void check_one(const v1::LoadStateRequest& request) { parse_state_name(request.state()); }
void check_one(const v1::SaveWeightsRequest& request) {
  check_folder_name("name", request.name());
  constexpr std::array<std::string_view, 4> kDtypes = {"", "float32", "bfloat16", "float16"};
  if (std::find(kDtypes.begin(), kDtypes.end(), request.dtype()) == kDtypes.end())
    base::refuse_field("dtype", "\"{}\" is unknown, expected float32, bfloat16 or float16",
                       request.dtype().substr(0, 80));
  if (!v1::WeightsStorage_IsValid(request.storage()))
    base::refuse_field("storage", "{} is unknown", static_cast<int>(request.storage()));
  if (request.storage() == v1::WEIGHTS_STORAGE_MEMORY && !request.dtype().empty())
    base::refuse_field("dtype", "\"{}\" is of weights on disk: in memory they keep their own",
                       request.dtype());
}
void check_one(const v1::SkipRequest& request) {
  constexpr std::array<std::string_view, 9> kVerbs = {
      "",           "forward_backward", "forward",        "optim_step",    "save_state",
      "load_state", "save_weights",     "get_parameters", "set_parameters"};
  if (std::find(kVerbs.begin(), kVerbs.end(), request.verb()) == kVerbs.end())
    base::refuse_field("verb", "there is no ordered verb \"{}\"", request.verb().substr(0, 80));
}

const char* name_one(const v1::ForwardBackwardRequest&) { return "forward_backward"; }
const char* name_one(const v1::ForwardRequest&) { return "forward"; }
const char* name_one(const v1::OptimStepRequest&) { return "optim_step"; }
const char* name_one(const v1::SaveStateRequest&) { return "save_state"; }
const char* name_one(const v1::LoadStateRequest&) { return "load_state"; }
const char* name_one(const v1::SaveWeightsRequest&) { return "save_weights"; }
const char* name_one(const v1::GetParametersRequest&) { return "get_parameters"; }
const char* name_one(const v1::SetParametersRequest&) { return "set_parameters"; }
const char* name_one(const v1::SkipRequest&) { return "skip"; }

}  // namespace

const v1::VerbId& id_of(const Verb::Request& request) {
  return std::visit([](const auto& verb) -> const v1::VerbId& { return verb.id(); }, request);
}

const char* name_of(const Verb::Request& request) {
  return std::visit([](const auto& verb) { return name_one(verb); }, request);
}

std::string digest_of(const Verb::Request& request) {
  return std::visit([](const auto& verb) { return message_digest(name_one(verb), verb); }, request);
}

std::size_t bytes_of(const Verb::Request& request) {
  return std::visit([](const auto& verb) { return verb.SpaceUsedLong(); }, request);
}

Verb::Request number_of(const Verb::Request& request) {
  return std::visit(
      [](const auto& verb) -> Verb::Request {
        std::decay_t<decltype(verb)> bare;
        bare.mutable_id()->set_seq(verb.id().seq());
        // Whether gradients are missing goes by the verb that was skipped. No verb's name is as
        // long as what is left of an unknown one.
        if constexpr (std::is_same_v<decltype(bare), v1::SkipRequest>)
          bare.set_verb(verb.verb().substr(0, 40));
        return bare;
      },
      request);
}

bool adds_gradients(const Verb::Request& request) {
  if (const auto* skip = std::get_if<v1::SkipRequest>(&request))
    return skip->verb().empty() || skip->verb() == "forward_backward";
  return std::holds_alternative<v1::ForwardBackwardRequest>(request);
}

bool may_be_left(const Verb::Request& request) {
  return std::holds_alternative<v1::ForwardBackwardRequest>(request) ||
         std::holds_alternative<v1::ForwardRequest>(request);
}

bool reads_files(const Verb::Request& request) {
  return std::holds_alternative<v1::SaveStateRequest>(request) ||
         std::holds_alternative<v1::LoadStateRequest>(request) ||
         std::holds_alternative<v1::SaveWeightsRequest>(request);
}

std::string upload_of(const Verb::Request& request) {
  return std::visit(
      [](const auto& verb) -> std::string {
        if constexpr (requires { verb.upload(); }) return verb.upload();
        return "";
      },
      request);
}

void check_verb(const Verb::Request& request) {
  std::visit([](const auto& verb) { check_one(verb); }, request);
}

}  // namespace meshloom::control
