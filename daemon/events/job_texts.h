// SPDX-License-Identifier: Apache-2.0
// Texts and hyperparameters of a job as events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/events/event_file.pb.h"
#include "v1/job.pb.h"

namespace meshloom::events {

/// Returns an event of now for the plugin "text", which shows Markdown. What is no UTF-8, or a
/// control character, is written as \xNN; of a long text the first 64 KiB are kept.
Event text_event(std::string_view tag, std::string_view markdown, std::int64_t step);
/// The text as it stands, in Markdown: a block of code.
std::string verbatim(std::string_view text);

/// The numbers, texts and switches of the job's resolved config, by their paths, for the plugin
/// "hparams". Where data lie and what they are is no choice, and is left out.
Event hparams_event(const v1::Job& job);
/// How it has ended.
Event hparams_end_event(v1::JobState state);

/// From here on what was told before of steps behind `after` does not count.
Event start_event(std::int64_t after);

}  // namespace meshloom::events
