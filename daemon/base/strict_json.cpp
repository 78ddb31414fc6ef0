// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/strict_json.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostShown = 80;
/// Values between two questions whether anybody still wants them.
constexpr std::size_t kAlive = 1 << 14;

/// Builds the document from events. The library's own parser with a callback, which could refuse
/// the same, walks through the parent of every object and array that ends.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json& document() { return document_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // no text has it
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    auto& object = open_.back()->get_ref<Json::object_t&>();
    const auto [at, is_new] = object.try_emplace(std::move(name));
    if (!is_new && limits_.keys_once)
      throw InvalidArgument(fmt::format("has the key \"{}\" twice in one object",
                                        printable_text(at->first, kMostShown, false)));
    under_key_ = &at->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw InvalidArgument(
        fmt::format("is not valid JSON: {}", printable_text(e.what(), 2 * kMostShown, false)));
  }

 private:
  /// Where the next value belongs.
  Json& place() {
    if (++values_ > limits_.values)
      throw ResourceExhausted(
          fmt::format("has more than {} values, which is the most that are read", limits_.values),
          "JSON_TOO_LARGE", {{"limit", std::to_string(limits_.values)}});
    if (limits_.alive && values_ % kAlive == 0) limits_.alive();
    if (open_.empty()) return document_;
    if (under_key_ != nullptr) return *std::exchange(under_key_, nullptr);
    return open_.back()->get_ref<Json::array_t&>().emplace_back();
  }
  template <typename Value>
  bool add(Value&& value) {
    place() = std::forward<Value>(value);
    return true;
  }
  bool open(Json empty) {
    Json& value = place();
    value = std::move(empty);
    open_.push_back(&value);
    if (open_.size() > limits_.depth)
      throw InvalidArgument(fmt::format("nests its values deeper than {} levels", limits_.depth));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json document_;
  std::vector<Json*> open_;  ///< the objects and arrays that have not ended, outermost first
  Json* under_key_ = nullptr;
  std::size_t values_ = 0;
};

}  // namespace

Json parse_strict_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  Json::sax_parse(text, &builder);
  return std::move(builder.document());
}

}  // namespace meshloom::base
