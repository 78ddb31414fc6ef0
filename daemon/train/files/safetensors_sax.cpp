// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/safetensors_sax.h"

#include <limits>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// A name cut to what fits in a message.
std::string shown(const std::string& name) {
  std::string out;
  for (char c : name.substr(0, 80)) out += c >= 0x20 && c <= 0x7e ? c : '?';
  return name.size() > 80 ? out + "..." : out;
}

}  // namespace

std::string SafetensorsSax::tensor() const {
  const bool inside =
      where_ == Where::kTensor || where_ == Where::kShape || where_ == Where::kOffsets;
  return inside ? shown(key_) : std::string();
}

bool SafetensorsSax::fail(std::string what) {
  const std::string name = tensor();
  error_ = name.empty() ? std::move(what) : fmt::format("tensor '{}': {}", name, what);
  return false;
}

bool SafetensorsSax::unexpected(const std::string& what) {
  switch (where_) {
    case Where::kOutside:
    case Where::kDone: return fail(what + " where the header's object is expected");
    case Where::kTop: return fail(fmt::format("'{}' is {}, not an object", shown(key_), what));
    case Where::kMetadata:
      return fail(fmt::format("__metadata__ '{}' is {}, not a string", shown(key_), what));
    case Where::kShape: return fail("the sizes of its shape are unsigned integers, not " + what);
    case Where::kOffsets: return fail("its data_offsets are unsigned integers, not " + what);
    case Where::kTensor: break;
  }
  const char* expected =
      field_ == Field::kDtype ? "dtype is a string" : "shape and data_offsets are arrays";
  return fail(fmt::format("{}, not {}", expected, what));
}

bool SafetensorsSax::number_integer(number_integer_t value) {
  return unexpected(fmt::format("{}", value));
}

bool SafetensorsSax::number_float(number_float_t, const string_t& text) {
  return unexpected(shown(text));
}

bool SafetensorsSax::number_unsigned(number_unsigned_t value) {
  if (where_ == Where::kOffsets) {
    if (offsets_.size() == 2) return fail("data_offsets holds more than two numbers");
    offsets_.push_back(value);
    return true;
  }
  if (where_ != Where::kShape) return unexpected(fmt::format("{}", value));
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return fail(fmt::format("size {} of its shape overflows 63 bits", value));
  if (entry().shape.size() == kMaxDims)
    return fail(fmt::format("its shape has more than {} sizes", kMaxDims));
  entry().shape.push_back(static_cast<std::int64_t>(value));
  return true;
}

bool SafetensorsSax::string(string_t& value) {
  if (where_ == Where::kMetadata) {
    if (!header_.metadata.emplace(key_, value).second)
      return fail(fmt::format("duplicate key '{}' in __metadata__", shown(key_)));
    return true;
  }
  if (where_ != Where::kTensor || field_ != Field::kDtype) return unexpected("a string");
  const auto dtype = dtype_from_safetensors_name(value);
  if (!dtype) return fail(fmt::format("dtype '{}' is not known", shown(value)));
  entry().dtype = *dtype;
  field_ = Field::kNone;
  return true;
}

bool SafetensorsSax::start_object(std::size_t) {
  if (where_ == Where::kOutside) {
    where_ = Where::kTop;
    return true;
  }
  if (where_ != Where::kTop) return unexpected("an object");
  if (key_ == "__metadata__") {
    if (seen_metadata_) return fail("duplicate key '__metadata__'");
    seen_metadata_ = true;
    where_ = Where::kMetadata;
    return true;
  }
  if (header_.entries.size() == kMaxSafetensorsEntries)
    return fail(fmt::format("more than {} tensors", kMaxSafetensorsEntries));
  header_.entries.emplace_back().name = key_;
  where_ = Where::kTensor;
  field_ = Field::kNone;
  seen_dtype_ = seen_shape_ = seen_offsets_ = false;
  return true;
}

bool SafetensorsSax::key(string_t& name) {
  if (where_ != Where::kTensor) {
    key_ = name;
    return true;
  }
  const auto once = [&](bool& seen, Field field) {
    if (seen) return fail(fmt::format("duplicate key '{}'", name));
    seen = true;
    field_ = field;
    return true;
  };
  if (name == "dtype") return once(seen_dtype_, Field::kDtype);
  if (name == "shape") return once(seen_shape_, Field::kShape);
  if (name == "data_offsets") return once(seen_offsets_, Field::kOffsets);
  return fail(fmt::format("unknown key '{}'", shown(name)));
}

bool SafetensorsSax::end_object() {
  if (where_ == Where::kTensor) {
    if (!seen_dtype_ || !seen_shape_ || !seen_offsets_)
      return fail("dtype, shape and data_offsets are expected");
    where_ = Where::kTop;
  } else {
    where_ = where_ == Where::kMetadata ? Where::kTop : Where::kDone;
  }
  return true;
}

bool SafetensorsSax::start_array(std::size_t) {
  if (where_ != Where::kTensor) return unexpected("an array");
  if (field_ != Field::kShape && field_ != Field::kOffsets) return unexpected("an array");
  where_ = field_ == Field::kShape ? Where::kShape : Where::kOffsets;
  offsets_.clear();
  return true;
}

bool SafetensorsSax::end_array() {
  if (where_ == Where::kOffsets) {
    if (offsets_.size() != 2) return fail("data_offsets holds fewer than two numbers");
    entry().begin = offsets_[0];
    entry().end = offsets_[1];
  }
  where_ = Where::kTensor;
  field_ = Field::kNone;
  return true;
}

bool SafetensorsSax::parse_error(std::size_t position, const std::string&,
                                 const nlohmann::detail::exception&) {
  error_ = fmt::format("not valid JSON at byte {}", position);
  return false;
}

}  // namespace meshloom::train
