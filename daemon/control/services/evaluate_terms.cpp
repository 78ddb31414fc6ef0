// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/evaluate_terms.h"

#include <string>
#include <string_view>

#include "daemon/control/services/source_field.h"

namespace meshloom::control {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string translate(std::string text, const v1::EvaluateRequest& request) {
  // What a request names is validated on.
  if (!request.data().path().empty()) replace_all(text, "run.data.validation_path", "data.path");
  replace_all(text, "run.data", "data");
  replace_all(text, "run.device", "device");
  replace_all(text, "run.mesh", "mesh");
  replace_all(text, "run.plan", "plan");
  for (const char* name : {"seq_len", "global_batch_size"})
    replace_all(text, std::string("run.training.") + name, name);
  replace_all(text, "run.training.micro_batch_size", "global_batch_size");
  // In the middle of a text it is advice for a job.
  if (text.starts_with("run.model"))
    text.replace(0, text.find_first_of(": "), source_field(request));
  return text;
}

}  // namespace

Error in_terms_of(const v1::EvaluateRequest& request, const Error& error) {
  Error::Metadata metadata = error.metadata();
  if (const auto field = metadata.find("field"); field != metadata.end())
    field->second = translate(field->second, request);
  return {error.kind(), error.reason(), translate(error.what(), request), std::move(metadata)};
}

}  // namespace meshloom::control
