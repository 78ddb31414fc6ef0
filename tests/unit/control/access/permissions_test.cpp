// SPDX-License-Identifier: Apache-2.0
// The table of who may do what: it has every method of the protocol, and says what is meant.
#include "daemon/control/access/permissions.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/source_folder.h"
#include "tests/unit/control/client_services.h"

namespace meshloom::control {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::string rule_name(const MethodRule& rule) {
  return std::string(rule.service) + "." + std::string(rule.method);
}

TEST(Permissions, EveryMethodOfEveryClientServiceHasARow) {
  std::set<std::string> in_protocol, in_table;
  for (const auto* method : client_methods())
    in_protocol.insert(method->service()->name() + "." + method->name());
  for (const MethodRule& rule : method_rules()) {
    EXPECT_TRUE(in_table.insert(rule_name(rule)).second) << rule_name(rule) << " is there twice";
    EXPECT_EQ(rule.least == Role::kNone, rule_name(rule) == "TokenService.WhoAmI")
        << rule_name(rule) << ": health is free, and to ask who one is";
  }
  EXPECT_GT(in_protocol.size(), 60u);
  EXPECT_EQ(in_table, in_protocol);
}

TEST(Permissions, RulesAreFoundByTheirRequests) {
  for (const auto* method : client_methods()) {
    const MethodRule& rule = rule_of_request(method->input_type()->name());
    EXPECT_EQ(std::string(rule.method), method->name());
    EXPECT_EQ(std::string(rule.service), method->service()->name());
  }
  EXPECT_THROW(rule_of_request("RankMessage"), InternalError);
}

TEST(Permissions, FieldsThatNameObjectsAreTexts) {
  for (const auto* method : client_methods())
    for (const NamedObject& object : rule_of_request(method->input_type()->name()).objects) {
      const Descriptor* message = method->input_type();
      std::istringstream path{std::string(object.field)};
      const FieldDescriptor* field = nullptr;
      for (std::string name; std::getline(path, name, '.');) {
        ASSERT_NE(message, nullptr) << method->full_name() << ": " << object.field;
        field = message->FindFieldByName(name);
        ASSERT_NE(field, nullptr) << method->full_name() << ": " << object.field;
        message = field->message_type();
      }
      EXPECT_EQ(field->cpp_type(), FieldDescriptor::CPPTYPE_STRING) << object.field;
    }
}

/// A request that is added with a field of one of these names has to say whose it is.
TEST(Permissions, FieldsThatAreCalledAsObjectsAreAreChecked) {
  const std::set<std::string> naming = {"name",  "run",        "job",    "model", "upload",
                                        "state", "checkpoint", "before", "after", "weights"};
  // Verbs take uploads that were made for their run, which is checked.
  const std::set<std::string> others = {
      "ForwardBackwardRequest.upload", "ForwardRequest.upload",   "SetParametersRequest.upload",
      "CreateModelRequest.name",       "ReadConfigRequest.name",  "WriteUploadRequest.upload",
      "SaveStateRequest.name",         "SaveWeightsRequest.name", "CreateTokenRequest.name",
      "RevokeTokenRequest.name",       "RotateTokenRequest.name"};
  for (const auto* method : client_methods()) {
    const Descriptor* request = method->input_type();
    for (int i = 0; i < request->field_count(); ++i) {
      const FieldDescriptor* field = request->field(i);
      const std::string whole = request->name() + "." + field->name();
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING || !naming.contains(field->name()) ||
          others.contains(whole))
        continue;
      bool checked = false;
      for (const NamedObject& object : rule_of_request(request->name()).objects)
        checked = checked || object.field == field->name();
      EXPECT_TRUE(checked) << whole;
    }
  }
}

TEST(Permissions, OwnersDoAllThatTheirRoleDoes) {
  for (const Need need : {Need::kLook, Need::kUse, Need::kOwn, Need::kOwnerAlone})
    for (const Role role : {Role::kSubmitter, Role::kAdmin})
      EXPECT_EQ(verdict_on_object(ObjectKind::kRun, need, role, Relation::kOwn), Verdict::kAllowed);
}

TEST(Permissions, OthersSeeWhatIsMeantForThem) {
  const auto on = [](ObjectKind kind, Need need, Role role, Relation relation) {
    return verdict_on_object(kind, need, role, relation);
  };
  // Jobs: viewers look; submitters do not know of them; admins do all but take what was computed.
  EXPECT_EQ(on(ObjectKind::kJob, Need::kLook, Role::kViewer, Relation::kOther), Verdict::kAllowed);
  EXPECT_EQ(on(ObjectKind::kJob, Need::kLook, Role::kSubmitter, Relation::kOther),
            Verdict::kHidden);
  EXPECT_EQ(on(ObjectKind::kJob, Need::kOwn, Role::kSubmitter, Relation::kOther), Verdict::kHidden);
  EXPECT_EQ(on(ObjectKind::kJob, Need::kOwn, Role::kAdmin, Relation::kOther), Verdict::kAllowed);
  EXPECT_EQ(on(ObjectKind::kJob, Need::kOwnerAlone, Role::kAdmin, Relation::kOther),
            Verdict::kDenied);
  // Runs and uploads: nobody but admins knows of them.
  for (const ObjectKind kind : {ObjectKind::kRun, ObjectKind::kUpload})
    for (const Role role : {Role::kViewer, Role::kSubmitter})
      EXPECT_EQ(on(kind, Need::kUse, role, Relation::kOther), Verdict::kHidden);
  // What is shared is used, and neither deleted nor driven.
  EXPECT_EQ(on(ObjectKind::kModel, Need::kUse, Role::kSubmitter, Relation::kShared),
            Verdict::kAllowed);
  EXPECT_EQ(on(ObjectKind::kModel, Need::kOwn, Role::kSubmitter, Relation::kShared),
            Verdict::kDenied);
  EXPECT_EQ(on(ObjectKind::kRun, Need::kOwnerAlone, Role::kSubmitter, Relation::kShared),
            Verdict::kDenied);
}

TEST(Permissions, TheDocumentationHasTheTable) {
  std::ifstream file(test::source_file("daemon/control/access/README.md"));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), ::testing::HasSubstr(permissions_text())) << "the table is now\n"
                                                                    << permissions_text();
}

}  // namespace
}  // namespace meshloom::control
