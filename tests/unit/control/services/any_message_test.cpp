// SPDX-License-Identifier: Apache-2.0
// Any message to any method by each role: nothing breaks, and nobody hears of what is another's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <random>

#include "tests/unit/control/client_services.h"
#include "tests/unit/control/whole_daemon.h"

namespace meshloom::control {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using ::testing::HasSubstr;
using ::testing::Not;

/// Fills messages with values of which many mean something to the daemon.
class Filler {
 public:
  explicit Filler(std::uint32_t seed) : random_(seed) {}

  void fill(Message* message, int depth = 0) {
    const auto* type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (depth > 4 || below(3) == 0) continue;
      const int items = field->is_repeated() ? below(3) : 1;
      for (int item = 0; item < items; ++item) fill_field(message, field, depth);
    }
  }
  int below(int bound) { return std::uniform_int_distribution(0, bound - 1)(random_); }

 private:
  std::string text() {
    static const std::vector<std::string> kTexts = {"",
                                                    "secret",
                                                    "jobs/secret",
                                                    "runs/secret",
                                                    "models/secret",
                                                    "mine",
                                                    "jobs/mine",
                                                    "models/mine",
                                                    "..",
                                                    "../../etc/passwd",
                                                    "a\n\"b",
                                                    "checkpoints/secret/step-1",
                                                    "runs/secret/weights/w",
                                                    "operations/secret/1/1",
                                                    "uploads/upload-1",
                                                    "plans/0123abcd",
                                                    "bytes",
                                                    "byte_gpt_1m",
                                                    "\xff\xfe",
                                                    "gpt2_missing",
                                                    std::string(300, 'x')};
    return kTexts[static_cast<std::size_t>(below(static_cast<int>(kTexts.size())))];
  }
  std::int64_t number() {
    static const std::vector<std::int64_t> kNumbers = {0,
                                                       1,
                                                       2,
                                                       -1,
                                                       7,
                                                       1000,
                                                       std::int64_t{1} << 31,
                                                       std::numeric_limits<std::int64_t>::max(),
                                                       std::numeric_limits<std::int64_t>::min()};
    return kNumbers[static_cast<std::size_t>(below(static_cast<int>(kNumbers.size())))];
  }
  void fill_field(Message* message, const FieldDescriptor* field, int depth) {
    const auto* reflection = message->GetReflection();
    const bool many = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return fill(many ? reflection->AddMessage(message, field)
                         : reflection->MutableMessage(message, field),
                    depth + 1);
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string value = text();
        if (field->type() == FieldDescriptor::TYPE_STRING && value[0] == '\xff') value = "u";
        return many ? reflection->AddString(message, field, value)
                    : reflection->SetString(message, field, value);
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        return many ? reflection->AddBool(message, field, below(2) == 0)
                    : reflection->SetBool(message, field, below(2) == 0);
      case FieldDescriptor::CPPTYPE_INT64:
        return many ? reflection->AddInt64(message, field, number())
                    : reflection->SetInt64(message, field, number());
      case FieldDescriptor::CPPTYPE_INT32:
        return many ? reflection->AddInt32(message, field, static_cast<std::int32_t>(number()))
                    : reflection->SetInt32(message, field, static_cast<std::int32_t>(number()));
      case FieldDescriptor::CPPTYPE_ENUM:
        return many ? reflection->AddEnumValue(message, field, below(12))
                    : reflection->SetEnumValue(message, field, below(12));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return many ? reflection->AddDouble(message, field, static_cast<double>(number()))
                    : reflection->SetDouble(message, field, static_cast<double>(number()));
      default: return;  // few, and of data alone
    }
  }

  std::mt19937 random_;
};

TEST(AnyMessage, BreaksNothingAndTellsNothingOfOthers) {
  const Identity owner{"owner", Role::kSubmitter};
  const std::vector<Identity> callers = {
      {"", Role::kNone}, {"vera", Role::kViewer}, {"mallory", Role::kSubmitter}, Identity::admin()};
  WholeDaemon daemon;
  v1::SubmitJobRequest job;
  job.mutable_spec()->set_name("secret");
  job.mutable_spec()->mutable_run()->mutable_training()->set_steps(1);
  job.mutable_spec()->mutable_run()->mutable_sample()->set_prompt("classified");
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(daemon.ask(owner, "JobService", job, &submitted).ok());
  v1::CreateRunRequest run;
  run.mutable_spec()->set_name("secret");
  run.mutable_spec()->mutable_config()->mutable_model()->set_preset("byte_gpt_1m");
  v1::CreateRunResponse created;
  ASSERT_TRUE(daemon.ask(owner, "RunService", run, &created).ok());

  Filler filler(44);
  const auto methods = client_methods();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  int calls = 0;
  for (; std::chrono::steady_clock::now() < end; ++calls) {
    const MethodDescriptor& method =
        *methods[static_cast<std::size_t>(filler.below(static_cast<int>(methods.size())))];
    // The one has no flight records to read here; the others wait for what a test does not do.
    if (method.name() == "DumpFlight" || method.name() == "Generate" ||
        method.name() == "Evaluate" || method.name() == "WaitOperation" ||
        method.name() == "SearchPlans" || method.name() == "WhoAmI")
      continue;
    const std::unique_ptr<Message> request(google::protobuf::MessageFactory::generated_factory()
                                               ->GetPrototype(method.input_type())
                                               ->New());
    filler.fill(request.get());
    const Identity& who = callers[static_cast<std::size_t>(calls) % callers.size()];
    if (who.role != Role::kNone && method.name() == "WatchJob") continue;  // which has no end
    if (const auto* follow = method.input_type()->FindFieldByName("follow"))
      request->GetReflection()->SetBool(request.get(), follow, false);
    const RawAnswer answer =
        daemon.call(who, "/" + method.service()->full_name() + "/" + method.name(), *request);
    SCOPED_TRACE(method.full_name() + " by a " + role_name(who.role) + ": " +
                 request->ShortDebugString().substr(0, 500));
    ASSERT_NE(answer.status.error_code(), grpc::StatusCode::INTERNAL)
        << answer.status.error_message();
    ASSERT_NE(answer.status.error_code(), grpc::StatusCode::UNKNOWN)
        << answer.status.error_message();
    ASSERT_NE(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    if (who.role == Role::kNone) {
      ASSERT_EQ(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
      ASSERT_TRUE(answer.messages.empty());
    }
    if (who.role != Role::kSubmitter) continue;
    for (const std::string& message : answer.messages)
      ASSERT_THAT(message, Not(HasSubstr("classified")));
  }
  EXPECT_GT(calls, 200);
  // Whatever others have sent, what is another's is as it was, but for what an admin may do.
  RecordProperty("calls", calls);
}

}  // namespace
}  // namespace meshloom::control
