// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/json_values.h"

#include <limits>

#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

using Json = nlohmann::ordered_json;

Value text_of_json(Work& work, const std::string& bytes) {
  std::string storage;
  return make_text(work, std::string(valid_utf8(bytes, storage)));
}

Value list_of_json(Work& work, const Json& json) {
  Values items;
  for (const Json& item : json) append(work, items, value_of_json(work, item));
  return make_list(work, std::move(items));
}

Value dict_of_json(Work& work, const Json& json) {
  Dict dict;
  for (const auto& [key, value] : json.items())
    dict.assign(work, text_of_json(work, key), value_of_json(work, value));
  return make_dict(work, std::move(dict));
}

}  // namespace

Value value_of_json(Work& work, const Json& json) {
  const Work::Level level(work);
  work.spend(1);
  switch (json.type()) {
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return json.get<std::int64_t>();
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      // The JSON library reads larger integers as floats, too.
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return static_cast<double>(number);
      return static_cast<std::int64_t>(number);
    }
    case Json::value_t::string: return text_of_json(work, json.get_ref<const std::string&>());
    case Json::value_t::array: return list_of_json(work, json);
    case Json::value_t::object: return dict_of_json(work, json);
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
  }
  return None();
}

}  // namespace meshloom::text::chat
