// SPDX-License-Identifier: Apache-2.0
// Which slot of which frame each name of a template is held in.
#pragma once

#include "daemon/text/template/source.h"
#include "daemon/text/template/syntax.h"

namespace meshloom::text::chat {

/// Fills in variables and scopes by Jinja's rules: what is assigned in a loop or a macro is not
/// seen outside of it, and a name that a part assigns to anywhere is the part's own.
void resolve_names(const SourceText& source, Syntax& syntax);

}  // namespace meshloom::text::chat
