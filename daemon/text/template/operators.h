// SPDX-License-Identifier: Apache-2.0
// Python's operators on values: arithmetic, items and slices.
#pragma once

#include "daemon/text/template/syntax.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

/// Computes with numbers, and with texts and lists, as Python has it: "a" + "b", [1] * 3, "%s" % x.
/// An integer that does not fit 64 bits is refused.
Value arithmetic(Work& work, Arithmetic op, const Value& a, const Value& b);
Value negative(Work& work, const Value& value);
Value positive(Work& work, const Value& value);

/// Returns object[key] as Jinja has it: the item, else the attribute, else an undefined value.
Value item(Work& work, const Value& object, const Value& key);
/// Returns object.name as Jinja has it: the attribute, else the item, else an undefined value.
Value attribute(Work& work, const Value& object, std::string_view name);
/// Returns the attribute alone; nothing where there is none.
std::optional<Value> own_attribute(Work& work, const Value& object, std::string_view name);
/// Returns object[start:stop:step]; null where one is left out.
Value slice(Work& work, const Value& object, const Value* start, const Value* stop,
            const Value* step);

}  // namespace meshloom::text::chat
