// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/names_of_others.h"

#include <array>
#include <cctype>
#include <string_view>

#include "v1/wait.pb.h"

namespace meshloom::control {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Hidden {
  std::string_view prefix;
  std::string_view instead;
};
constexpr std::array kHidden{Hidden{"jobs/", "another's job"}, Hidden{"runs/", "another's run"}};

/// Fields of answers that name who has the ranks, who waits for them or who uses something.
struct NamingField {
  std::string_view message, field;
};
constexpr std::array kNaming{
    NamingField{"RanksWait", "reason"},    NamingField{"Run", "ahead"},
    NamingField{"EvaluateWait", "behind"}, NamingField{"ListWorkersResponse", "has_ranks"},
    NamingField{"Operation", "waits_for"}, NamingField{"Model", "users"},
    NamingField{"Plan", "users"},
};

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

/// Of what is another's, its client's name, too: `, whose client "NAME"`.
std::size_t end_of_client(const std::string& text, std::size_t at, std::string* kept) {
  constexpr std::string_view kWhose = ", whose client \"";
  if (text.compare(at, kWhose.size(), kWhose) != 0) return at;
  const auto quote = text.find('"', at + kWhose.size());
  if (quote == std::string::npos) return at;
  *kept += ", whose client";
  return quote + 1;
}

bool is_naming(const Message& message, const FieldDescriptor& field) {
  for (const NamingField& naming : kNaming)
    if (message.GetDescriptor()->name() == naming.message && field.name() == naming.field)
      return true;
  return false;
}

void hide_in_text(Message* message, const FieldDescriptor* field, const MaySee& may_see) {
  const auto* reflection = message->GetReflection();
  if (!field->is_repeated()) {
    const std::string text = reflection->GetString(*message, field);
    return reflection->SetString(message, field, without_names_of_others(text, may_see));
  }
  for (int i = 0; i < reflection->FieldSize(*message, field); ++i)
    reflection->SetRepeatedString(
        message, field, i,
        without_names_of_others(reflection->GetRepeatedString(*message, field, i), may_see));
}

}  // namespace

std::string without_names_of_others(const std::string& text, const MaySee& may_see) {
  std::string shown;
  std::size_t at = 0;
  while (at < text.size()) {
    const Hidden* found = nullptr;
    if (at == 0 || (!is_name_character(text[at - 1]) && text[at - 1] != '/'))
      for (const Hidden& hidden : kHidden)
        if (text.compare(at, hidden.prefix.size(), hidden.prefix) == 0) found = &hidden;
    if (found == nullptr) {
      shown += text[at++];
      continue;
    }
    std::size_t end = at + found->prefix.size();
    while (end < text.size() && is_name_character(text[end])) ++end;
    const std::string resource = text.substr(at, end - at);
    at = end;
    if (may_see(resource)) {
      shown += resource;
      continue;
    }
    shown += found->instead;
    at = end_of_client(text, at, &shown);
  }
  return shown;
}

void hide_others(Message* answer, const MaySee& may_see) {
  const auto* reflection = answer->GetReflection();
  if (answer->GetDescriptor() == v1::WaitAhead::descriptor()) {
    auto& ahead = dynamic_cast<v1::WaitAhead&>(*answer);
    const std::string shown = without_names_of_others(ahead.name(), may_see);
    if (shown != ahead.name()) ahead.clear_client();
    ahead.set_name(shown);
    return;
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*answer, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (is_naming(*answer, *field)) hide_in_text(answer, field, may_see);
      continue;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (!field->is_repeated()) {
      hide_others(reflection->MutableMessage(answer, field), may_see);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*answer, field); ++i)
      hide_others(reflection->MutableRepeatedMessage(answer, field, i), may_see);
  }
}

}  // namespace meshloom::control
