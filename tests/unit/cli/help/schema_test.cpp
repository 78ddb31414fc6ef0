// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/help/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/cli/exit_code.h"
#include "v1/job.pb.h"

namespace meshloom::cli {
namespace {

using ::testing::HasSubstr;

std::string schema_refusal(const std::string& path) {
  try {
    find_schema(path);
  } catch (const CliError& error) {
    return error.what();
  }
  return "";
}

void count_leaves(const google::protobuf::Descriptor& type, int* leaves) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.message_type() && !field.is_map())
      count_leaves(*field.message_type(), leaves);
    else
      ++*leaves;
  }
}

TEST(Schema, FieldsHaveTheTypesAndCommentsOfTheProtos) {
  const SchemaEntry entry = find_schema("run.optimizer");
  EXPECT_EQ(entry.self.path, "run.optimizer");
  ASSERT_FALSE(entry.fields.empty());
  EXPECT_EQ(entry.fields[0].path, "run.optimizer.type");
  EXPECT_EQ(entry.fields[0].type, "adamw | adam | sgd");
  EXPECT_EQ(entry.fields[0].comment, "default: adamw");
  EXPECT_EQ(entry.fields[1].type, "number");
  EXPECT_EQ(entry.fields[1].comment, "default 3e-4; 0: nothing moves");
  EXPECT_EQ(find_schema("optimizer.decay").self.type, "list of text");
  EXPECT_THAT(find_schema("lr_scheduler.decay_type").self.values[3].comment,
              HasSubstr("linear decay"));
  EXPECT_EQ(find_schema("labels").self.type, "map of keys to text");
  EXPECT_THAT(find_schema("daemon").self.comment, HasSubstr("--config"));
  EXPECT_EQ(find_schema("daemon.uploads.idle_seconds").self.path, "daemon.uploads.idle_seconds");
  EXPECT_EQ(find_schema("plan.styles[].styles[].style").self.path,
            find_schema("run.plan.styles.styles.style").self.path);
}

TEST(Schema, AllFieldsAreThoseOfTheMessages) {
  int leaves = 0;
  count_leaves(*v1::JobSpec::descriptor(), &leaves);
  std::set<std::string> paths;
  for (const SchemaField& field : all_fields("")) {
    paths.insert(field.path);
    EXPECT_EQ(find_schema(field.path).self.path, field.path);
  }
  EXPECT_EQ(paths.size(), static_cast<std::size_t>(leaves));
  EXPECT_TRUE(paths.contains("run.training.steps"));
  EXPECT_EQ(all_fields("training.steps").size(), 1u);
}

TEST(Schema, UnknownFieldsNameTheNearest) {
  EXPECT_THAT(schema_refusal("optimizr"), HasSubstr("did you mean \"optimizer\"?"));
  EXPECT_THAT(schema_refusal("run.optimizer.lrr"),
              HasSubstr("run.optimizer: unknown field \"lrr\""));
  EXPECT_THAT(schema_refusal("training.steps.more"), HasSubstr("has no fields"));
  EXPECT_THAT(schema_refusal("daemon.nothing_like_it"), HasSubstr("valid here"));
}

}  // namespace
}  // namespace meshloom::cli
