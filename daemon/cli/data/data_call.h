// SPDX-License-Identifier: Apache-2.0
// Calls of the DataService tell how far they are, and this shows it.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "daemon/cli/client.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {

/// Returns the result of a call that `open` begins, after its last progress was shown; nothing
/// after Ctrl-C.
template <typename Response, typename Open>
std::optional<Response> last_of(Client& client, bool json, const char* doing, const Open& open) {
  grpc::ClientContext context;
  client.introduce(context);
  const auto stream = open(&context);
  const InterruptScope interrupt([&] { context.TryCancel(); });
  const bool terminal = !json && is_terminal(STDERR_FILENO);
  Response last;
  for (Response event; stream->Read(&event);) {
    last = event;
    if (!terminal || !event.has_progress()) continue;
    fmt::print(stderr, "{}{} {}: {} of {}", kClearLine, doing, event.progress().field(),
               bytes_text(event.progress().bytes()), bytes_text(event.progress().total_bytes()));
    std::fflush(stderr);
  }
  if (terminal) fmt::print(stderr, "{}", kClearLine);
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) return std::nullopt;
  if (!status.ok()) client.fail(status);
  return last;
}

}  // namespace meshloom::cli
