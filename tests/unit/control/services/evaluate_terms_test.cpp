// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/evaluate_terms.h"

#include <gtest/gtest.h>

#include "daemon/base/field_error.h"

namespace meshloom::control {
namespace {

v1::EvaluateRequest on_file() {
  v1::EvaluateRequest request;
  request.set_hf_folder("gpt2");
  request.mutable_data()->set_path("a.bin");
  return request;
}

struct Told {
  std::string text, field;
};

Told told(const v1::EvaluateRequest& request, const std::string& field, const std::string& text) {
  try {
    in_request_terms(request, [&] { base::refuse_field(field, "{}", text); });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    return {error.what(), error.metadata().at("field")};
  }
  return {"nothing was thrown", ""};
}

TEST(EvaluateTerms, FieldsAreThoseOfTheRequest) {
  const auto field = [](const char* of_config) {
    const Told refused = told(on_file(), of_config, "is wrong");
    EXPECT_EQ(refused.text, refused.field + ": is wrong");
    return refused.field;
  };
  EXPECT_EQ(field("run.data.path"), "data.path");
  EXPECT_EQ(field("run.data.validation_path"), "data.path");
  EXPECT_EQ(field("run.data.masked_lm.mask_token"), "data.masked_lm.mask_token");
  EXPECT_EQ(field("run.training.seq_len"), "seq_len");
  EXPECT_EQ(field("run.training.global_batch_size"), "global_batch_size");
  EXPECT_EQ(field("run.training.micro_batch_size"), "global_batch_size");
  EXPECT_EQ(field("run.device"), "device");
  EXPECT_EQ(field("run.mesh.tp"), "mesh.tp");
  EXPECT_EQ(field("run.plan.dtype"), "plan.dtype");
  EXPECT_EQ(field("run.model.name"), "hf_folder");
  EXPECT_EQ(field("run.model"), "hf_folder");
  EXPECT_EQ(field("batches"), "batches");
}

TEST(EvaluateTerms, TheSourceIsNamedAsItWasGiven) {
  v1::EvaluateRequest request;
  request.set_job("jobs/a");
  EXPECT_EQ(told(request, "run.model.name", "is damaged").text, "job: is damaged");
  EXPECT_EQ(told(request, "run.data.validation_path", "is gone").field, "data.validation_path")
      << "the job's own";
  request.set_checkpoint("checkpoints/a/step-1");
  EXPECT_EQ(told(request, "run.model.name", "is damaged").field, "checkpoint");
  request.set_model("models/a");
  EXPECT_EQ(told(request, "run.model.name", "is damaged").field, "model");
}

TEST(EvaluateTerms, AdviceForJobsStays) {
  EXPECT_EQ(told(on_file(), "run.model.fresh_head",
                 "has no head: a job with run.model.fresh_head trains one, and run.mesh.tp is 1")
                .text,
            "hf_folder: has no head: a job with run.model.fresh_head trains one, and mesh.tp is 1");
}

}  // namespace
}  // namespace meshloom::control
