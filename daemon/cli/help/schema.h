// SPDX-License-Identifier: Apache-2.0
// The schema tells the fields of config files with their comments, out of the protos that they are
// spelled as.
#pragma once

#include <string>
#include <vector>

namespace meshloom::cli {

struct SchemaValue {
  std::string name;  ///< as it is written: "cosine"
  std::string comment;
};

/// SchemaField is a field as a file has it.
struct SchemaField {
  std::string path;  ///< "run.optimizer.lr"; of an item of a list "run.plan.styles[].pattern"
  std::string type;  ///< "number", "list of text", "cosine | linear", "fields"
  std::string comment;
  std::vector<SchemaValue> values;  ///< of one with named values
  bool has_fields = false;
};

/// SchemaEntry is what a path names: a field, with the fields below it.
struct SchemaEntry {
  SchemaField self;  ///< path and type are empty for a whole file
  std::vector<SchemaField> fields;
};

/// Finds "run.optimizer" of a job file, in which "run." may be left out; "" is the whole file.
/// "daemon" and what is below it are of meshloomd's --config. Throws CliError (kUsage) that names
/// the nearest field.
SchemaEntry find_schema(const std::string& path);

/// Returns every field at or below the path that has no fields of its own, in the order of the
/// schema.
std::vector<SchemaField> all_fields(const std::string& path);

}  // namespace meshloom::cli
