// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/names.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::string_view kCheckpoints = "checkpoints/";

constexpr std::size_t kLongestName = 63;

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_letter_or_digit(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

bool is_plain(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
}

bool is_id(const std::string& id) {
  return !id.empty() && id.size() <= kLongestName && is_lower_or_digit(id[0]) &&
         std::all_of(id.begin(), id.end(),
                     [](char c) { return is_lower_or_digit(c) || c == '_' || c == '-'; });
}

[[noreturn]] void bad_name(const std::string& what, const std::string& name,
                           const std::string& expected) {
  const std::string shown = name.substr(0, 80);
  throw InvalidArgument(fmt::format("{} \"{}\" is not valid, expected {}", what, shown, expected),
                        "NAME_INVALID", {{"name", shown}});
}

std::string parse_id(const char* kind, std::string_view prefix, const std::string& name) {
  const std::string id = name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
  if (!is_id(id)) bad_name(fmt::format("{} name", kind), name, "[a-z0-9][a-z0-9_-]{0,62}");
  return id;
}

template <typename Place>
std::uint32_t token_check(const std::string& scope, const Place& place) {
  const std::string text = fmt::format("{}:{}", scope, place);
  return XXH32(text.data(), text.size(), 0x6d6c);
}

[[noreturn]] void bad_token() {
  throw InvalidArgument("page_token is not one that this list gave", "PAGE_TOKEN_INVALID",
                        {{"field", "page_token"}});
}

/// "runs/RUN/KIND/NAME".
std::pair<std::string, std::string> parse_of_run(const char* what, const std::string& kind,
                                                 const std::string& name) {
  constexpr std::string_view kRuns = "runs/";
  const std::string between = "/" + kind + "/";
  const std::string expected = "runs/RUN" + between + "NAME";
  const auto at = name.find(between);
  if (name.rfind(kRuns, 0) != 0 || at == std::string::npos) bad_name(what, name, expected);
  std::string run = name.substr(kRuns.size(), at - kRuns.size());
  std::string last = name.substr(at + between.size());
  if (!is_id(run) || !is_folder_name(last)) bad_name(what, name, expected);
  return {std::move(run), std::move(last)};
}

}  // namespace

std::string parse_job_name(const std::string& name) { return parse_id("job", "jobs/", name); }
std::string job_resource(const std::string& id) { return "jobs/" + id; }

std::string parse_model_name(const std::string& name) { return parse_id("model", "models/", name); }
std::string model_resource(const std::string& id) { return "models/" + id; }

std::string parse_upload_name(const std::string& name) {
  return parse_id("upload", "uploads/", name);
}
std::string upload_resource(const std::string& id) { return "uploads/" + id; }
std::string parse_plan_name(const std::string& name) {
  constexpr std::string_view kPrefix = "plans/";
  constexpr std::size_t kFewest = 8, kDigits = 64;
  const std::string id = name.rfind(kPrefix, 0) == 0 ? name.substr(kPrefix.size()) : name;
  const bool digits = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (!digits || id.size() < kFewest || id.size() > kDigits)
    bad_name("plan name", name, "8 to 64 hexadecimal digits");
  return id;
}
std::string plan_resource(const std::string& id) { return "plans/" + id; }

std::string parse_run_name(const std::string& name) { return parse_id("run", "runs/", name); }
std::string run_resource(const std::string& id) { return "runs/" + id; }

StateName parse_state_name(const std::string& name) {
  auto [run, state] = parse_of_run("state name", "states", name);
  return {std::move(run), std::move(state)};
}
std::string state_resource(const std::string& run, const std::string& state) {
  return fmt::format("runs/{}/states/{}", run, state);
}

WeightsName parse_weights_name(const std::string& name) {
  auto [run, weights] = parse_of_run("name of weights", "weights", name);
  return {std::move(run), std::move(weights)};
}
std::string weights_resource(const std::string& run, const std::string& weights) {
  return fmt::format("runs/{}/weights/{}", run, weights);
}

bool is_folder_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && is_letter_or_digit(name[0]) &&
         is_plain(name);
}

bool is_file_name(const std::string& name) {
  constexpr std::size_t kLongest = 128;
  return !name.empty() && name.size() <= kLongest &&
         (is_letter_or_digit(name[0]) || name[0] == '_') && is_plain(name);
}

bool names_a_job(const std::string& resume_from) { return resume_from.starts_with(kCheckpoints); }

CheckpointName parse_checkpoint_name(const std::string& name) {
  constexpr const char* kExpected = "checkpoints/JOB/FOLDER";
  if (!names_a_job(name)) bad_name("checkpoint name", name, kExpected);
  const auto slash = name.find('/', kCheckpoints.size());
  if (slash == std::string::npos) bad_name("checkpoint name", name, kExpected);
  CheckpointName parsed{name.substr(kCheckpoints.size(), slash - kCheckpoints.size()),
                        name.substr(slash + 1)};
  if (!is_id(parsed.job) || !is_folder_name(parsed.folder))
    bad_name("checkpoint name", name, kExpected);
  return parsed;
}

std::string checkpoint_resource(const std::string& job, const std::string& folder) {
  return fmt::format("checkpoints/{}/{}", job, folder);
}

std::string make_page_token(const std::string& scope, std::int64_t position) {
  return fmt::format("{:x}.{:08x}", position, token_check(scope, position));
}

std::int64_t parse_page_token(const std::string& scope, const std::string& token) {
  if (token.empty()) return 0;
  std::int64_t position = 0;
  const auto [rest, error] =
      std::from_chars(token.data(), token.data() + token.size(), position, 16);
  (void)rest;
  if (error != std::errc() || position < 0 || token != make_page_token(scope, position))
    bad_token();
  return position;
}

std::string make_place_token(const std::string& scope, const std::string& place) {
  return fmt::format("{:08x}.{}", token_check(scope, place), place);
}

std::string parse_place_token(const std::string& scope, const std::string& token) {
  if (token.empty()) return {};
  constexpr std::size_t kCheckSize = 9;
  if (token.size() <= kCheckSize) bad_token();
  std::string place = token.substr(kCheckSize);
  if (token != make_place_token(scope, place)) bad_token();
  return place;
}

int page_size_or_default(std::optional<int> asked, int most) {
  constexpr int kDefault = 50;
  if (asked && *asked <= 0)
    throw InvalidArgument(
        fmt::format("page_size: must be above 0, got {}; leave it out for {}", *asked, kDefault),
        "PAGE_SIZE_INVALID", {{"field", "page_size"}});
  return std::min(asked.value_or(kDefault), most);
}

}  // namespace meshloom::control
