// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/familiar_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "daemon/base/familiar_words.h"
#include "daemon/base/job_fields.h"

namespace meshloom::base {
namespace {

using familiar::Familiar;
using familiar::kFamiliar;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::string plain(std::string_view key) {
  std::string text(key);
  for (char& c : text)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// All places of a field of this name below `type`. Schemas of config files are trees.
void find_places(const Descriptor& type, const std::string& key, const std::string& path,
                 std::vector<std::string>* places) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string place = path.empty() ? field.name() : path + "." + field.name();
    if (field.name() == key) places->push_back(place);
    if (field.message_type() && !field.is_map() && !field.is_repeated())
      find_places(*field.message_type(), key, place, places);
  }
}

/// The key that a RunConfig stands under: "run" of a job, "config" of a run that is driven step by
/// step; empty where there is none.
std::string section_of(const Descriptor& root) {
  for (const char* name : {"run", "config"}) {
    const FieldDescriptor* field = root.FindFieldByName(name);
    if (field && field->message_type() && field->message_type()->name() == "RunConfig") return name;
  }
  return "";
}

/// What another trainer calls so; null if none does, or where `root` has no run.
const Familiar* find_familiar(const std::string& key, const Descriptor& root) {
  if (section_of(root).empty()) return nullptr;
  const auto known = std::find_if(std::begin(kFamiliar), std::end(kFamiliar),
                                  [&](const Familiar& item) { return item.key == key; });
  return known == std::end(kFamiliar) ? nullptr : known;
}

bool is_a_sentence(const Familiar& known) {
  return std::string_view(known.place).starts_with("not ");
}

/// Returns the path below a job, without what stands behind it.
std::string path_of(const Familiar& known) {
  const std::string_view place = known.place;
  return std::string(place.substr(0, place.find_first_of(":, ")));
}

/// Returns whether files of type `root` have no use for a field, by its path below a job.
bool is_for_jobs_alone(const std::string& path, const Descriptor& root) {
  if (!path.starts_with("run.")) return root.FindFieldByName(path) == nullptr;
  const std::string below = path.substr(4) + ".";
  return section_of(root) == "config" &&
         std::any_of(std::begin(kJobFields), std::end(kJobFields), [&](std::string_view field) {
           return below.starts_with(std::string(field) + ".");
         });
}

/// Returns the words with all paths below `section` in the place of "run".
std::string in_section(std::string words, const std::string& section) {
  const std::string run = "run.", wanted = section + ".";
  for (auto at = words.find(run); at != std::string::npos; at = words.find(run, at + wanted.size()))
    words.replace(at, run.size(), wanted);
  return words;
}

std::string words_of(const Familiar& known, const Descriptor& root) {
  if (is_a_sentence(known)) return known.place;
  if (is_for_jobs_alone(path_of(known), root))
    return fmt::format("only a job has it, as {}", known.place);
  return "here it is " + in_section(known.place, section_of(root));
}

/// The places of fields of this name, unless there are so many that they say nothing.
std::vector<std::string> few_places(const std::string& key, const Descriptor& root) {
  constexpr std::size_t kMostPlaces = 3;
  std::vector<std::string> places;
  find_places(root, key, "", &places);
  if (section_of(root) == "config")
    std::erase_if(places, [&](const std::string& place) {
      return place.starts_with("config.") && is_for_jobs_alone("run." + place.substr(7), root);
    });
  if (places.size() > kMostPlaces) places.clear();
  return places;
}

}  // namespace

std::string familiar_key(std::string_view key, const Descriptor& root) {
  const std::string wanted = plain(key);
  if (const Familiar* known = find_familiar(wanted, root)) return words_of(*known, root);
  const auto places = few_places(wanted, root);
  return places.empty() ? "" : fmt::format("here it is {}", fmt::join(places, " or "));
}

std::vector<std::string> familiar_fields(std::string_view key, const Descriptor& root) {
  const std::string wanted = plain(key);
  const Familiar* known = find_familiar(wanted, root);
  if (!known) return few_places(wanted, root);
  const std::string path = path_of(*known);
  if (!path.starts_with("run.")) return {};
  return {path};
}

}  // namespace meshloom::base
