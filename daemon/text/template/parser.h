// SPDX-License-Identifier: Apache-2.0
// A template as its syntax tree.
#pragma once

#include "daemon/text/template/source.h"
#include "daemon/text/template/syntax.h"

namespace meshloom::text::chat {

/// Throws as SourceText does: for what is no template, what this language has not, and what is
/// nested too deep.
Syntax parse_template(const SourceText& source);

}  // namespace meshloom::text::chat
