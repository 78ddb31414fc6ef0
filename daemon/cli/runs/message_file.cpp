// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/message_file.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <filesystem>
#include <limits>

#include "daemon/base/input_file.h"
#include "daemon/cli/exit_code.h"
#include "daemon/cli/standard_input.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

/// The parser of JSON counts bytes with an int.
constexpr std::size_t kMostText = std::numeric_limits<int>::max();

std::string read_text(const std::string& file, const std::string& name) {
  try {
    if (file != "-") return base::InputFile(file).read_text(kMostText);
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
  std::string text = read_standard_input(kMostText + 1);
  if (text.size() > kMostText)
    throw CliError(kUsage, fmt::format("{} has more than {} bytes", name, kMostText));
  return text;
}

/// The parser's text is a line of what is wrong, one of the place, and one that points into that.
std::string problem_of(const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return text;
  const std::string place = text.substr(end + 1, text.find('\n', end + 1) - end - 1);
  return place.empty() ? text.substr(0, end)
                       : fmt::format("{} Near: {}", text.substr(0, end), place);
}

}  // namespace

void read_message_file(const std::string& file, google::protobuf::Message* message) {
  const std::string name = file == "-" ? "standard input" : file;
  const auto status = google::protobuf::util::JsonStringToMessage(read_text(file, name), message);
  if (!status.ok())
    throw CliError(kUsage,
                   fmt::format("{}: no {} in JSON: {}", name, message->GetDescriptor()->name(),
                               problem_of(std::string(status.message()))));
}

MessageOutput::MessageOutput(const std::string& file) {
  if (file == "-") return;
  // Renaming over a device or a folder would put an ordinary file in its place.
  if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file))
    throw CliError(kUsage, fmt::format("{} is not a regular file", file));
  try {
    file_ = std::make_unique<base::ReplacementFile>(file, 0666);
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

void MessageOutput::write(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok())
    throw CliError(kFailed, fmt::format("{} as JSON: {}", message.GetDescriptor()->name(),
                                        std::string(status.message())));
  text += '\n';
  if (!file_) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  try {
    file_->write(text);
    file_->commit();
  } catch (const Error& error) {
    throw CliError(kFailed, error.what());
  }
}

}  // namespace meshloom::cli
