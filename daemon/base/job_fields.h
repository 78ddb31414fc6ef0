// SPDX-License-Identifier: Apache-2.0
// The fields of a RunConfig that jobs alone use.
#pragma once

#include <string_view>

namespace meshloom::base {

/// Fields and sections of RunConfig, by their paths below it. A run that is driven step by step has
/// no use for them: its verbs say what they say for a job.
inline constexpr std::string_view kJobFields[] = {"training.steps",
                                                  "training.global_batch_size",
                                                  "training.peak_flops",
                                                  "training.early_stopping",
                                                  "training.watch",
                                                  "lr_scheduler",
                                                  "data",
                                                  "validation",
                                                  "checkpoint",
                                                  "export",
                                                  "sample",
                                                  "metrics"};

}  // namespace meshloom::base
