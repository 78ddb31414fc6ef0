// SPDX-License-Identifier: Apache-2.0
// Commands and results that tests of the ranks share.
#pragma once

#include <string>

#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Makes the run of a job.
inline v1::RankCommand create_job_run(const std::string& name) {
  v1::RankCommand command;
  command.mutable_create_run()->set_run(name);
  command.mutable_create_run()->set_with_data(true);
  return command;
}

inline v1::RankCommand optim_step(const std::string& name) {
  v1::RankCommand command;
  command.mutable_apply_gradients()->set_run(name);
  return command;
}

/// Saves a job's checkpoint.
inline v1::RankCommand save_checkpoint(const std::string& name) {
  v1::RankCommand command;
  command.mutable_write_state()->set_run(name);
  command.mutable_write_state()->mutable_job();
  return command;
}

/// A command of so many tokens, of five bytes each.
inline v1::RankCommand sample_of(std::int64_t tokens) {
  v1::RankCommand command;
  command.mutable_sample()->add_sequences()->mutable_token_ids()->Resize(static_cast<int>(tokens),
                                                                         1'000'000'000);
  return command;
}

inline v1::RankResult answer(std::int64_t seq, int rank) {
  v1::RankResult result;
  result.set_seq(seq);
  result.set_rank(rank);
  return result;
}

}  // namespace meshloom::control
