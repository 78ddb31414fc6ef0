// SPDX-License-Identifier: Apache-2.0
// Reads YAML into a proto message by reflection: the messages are the schema of every config file.
#pragma once

#include <google/protobuf/message.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace meshloom::base {

/// SourceLines has the line (from 1) of every field that a file gave, by its path
/// ("run.training.steps", "run.optimizer.decay[1]").
using SourceLines = std::map<std::string, int>;

struct YamlLimits {
  std::size_t bytes = 1 << 20;
  int depth = 32;
  int nodes = 100'000;  ///< visited, so that aliases of aliases do not multiply
};

/// Returns the keys of a message in a file, in the order of its schema.
std::vector<std::string> field_names(const google::protobuf::Descriptor& type);

/// Fills `message` from YAML text. Keys are the field names, enum values lower case without prefix,
/// booleans true and false only; numbers are range-checked and never made from quoted text. Unknown
/// keys, duplicate keys, keys without a value and wrong types are gathered and thrown as one
/// InvalidArgument (CONFIG_INVALID) with a line "file:line: path: what was seen, what was expected"
/// for each. `name` is the file as the user knows it.
SourceLines read_yaml(const std::string& text, const std::string& name,
                      google::protobuf::Message* message, const YamlLimits& limits = {});

/// Reads a file as read_yaml reads a text. Throws NotFound if there is none, IoError if it cannot
/// be read, InvalidArgument for a folder.
SourceLines read_yaml_file(const std::filesystem::path& path, google::protobuf::Message* message,
                           const YamlLimits& limits = {});

/// Returns the keys at the top of a file, whatever they are. None of text that read_yaml refuses as
/// no YAML.
std::vector<std::string> top_keys(const std::string& text, const YamlLimits& limits = {});

}  // namespace meshloom::base
