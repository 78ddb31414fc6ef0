// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/stepped_verbs.h"

#include "kernels/base/error.h"

namespace meshloom::control {

void run_stepped_verb(train::SteppedRun& run, const v1::RankCommand& command,
                      v1::RankResult* result) {
  switch (command.verb_case()) {
    case v1::RankCommand::kLoss: {
      const v1::LossCommand& verb = command.loss();
      const train::WholeBatch whole = {verb.samples(), verb.counted_tokens(),
                                       verb.several_targets()};
      *result->mutable_loss() = verb.backward() ? run.forward_backward(verb.batch(), whole)
                                                : run.forward(verb.batch(), whole, verb.train());
      return;
    }
    case v1::RankCommand::kPoison: return run.poison(command.poison().cause());
    case v1::RankCommand::kApplyGradients:
      *result->mutable_apply_gradients() = run.optim_step(command.apply_gradients().params());
      return;
    case v1::RankCommand::kWriteState: {
      const auto& metadata = command.write_state().user_metadata();
      run.save_state(command.write_state().folder(), {metadata.begin(), metadata.end()});
      result->mutable_write_state()->set_step(run.step());
      return;
    }
    case v1::RankCommand::kLoadState:
      return run.load_state(command.load_state().folder(),
                            !command.load_state().without_optimizer());
    case v1::RankCommand::kGetParameters: {
      const auto& names = command.get_parameters().names();
      for (v1::ParameterValue& value : run.get_parameters({names.begin(), names.end()}))
        *result->mutable_parameters()->add_parameters() = std::move(value);
      return;
    }
    case v1::RankCommand::kSetParameters: {
      const auto& values = command.set_parameters().parameters();
      return run.set_parameters({values.begin(), values.end()});
    }
    case v1::RankCommand::kKeepSnapshot: return run.keep_snapshot(command.keep_snapshot().name());
    case v1::RankCommand::kDropSnapshot: return run.drop_snapshot(command.drop_snapshot().name());
    default: throw InternalError("no verb of a run that a client drives");
  }
}

}  // namespace meshloom::control
