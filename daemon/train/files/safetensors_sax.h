// SPDX-License-Identifier: Apache-2.0
// Event handler that turns a safetensors header's JSON into entries without building a document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/train/files/safetensors_header.h"

namespace meshloom::train {

/// SafetensorsSax is for nlohmann::json::sax_parse. Stops at the first event that a header cannot
/// hold, with error() saying which; so nesting and duplicate keys cost nothing. Duplicate tensor
/// names are left to the caller.
class SafetensorsSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit SafetensorsSax(SafetensorsHeader& header) : header_(header) {}

  const std::string& error() const { return error_; }
  /// Returns the name of the tensor that the error is about, or empty.
  std::string tensor() const;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool start_object(std::size_t) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& e) override;

 private:
  enum class Where { kOutside, kTop, kTensor, kMetadata, kShape, kOffsets, kDone };
  enum class Field { kNone, kDtype, kShape, kOffsets };

  bool fail(std::string what);
  bool unexpected(const std::string& what);
  SafetensorsEntry& entry() { return header_.entries.back(); }

  SafetensorsHeader& header_;
  std::string error_;
  Where where_ = Where::kOutside;
  Field field_ = Field::kNone;  ///< inside a tensor: whose value comes next
  std::string key_;             ///< last key of the top level or the metadata
  bool seen_metadata_ = false;
  bool seen_dtype_ = false, seen_shape_ = false, seen_offsets_ = false;
  std::vector<std::uint64_t> offsets_;
};

}  // namespace meshloom::train
