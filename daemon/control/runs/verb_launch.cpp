// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb_launch.h"

#include <filesystem>
#include <variant>

#include "daemon/base/field_error.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/ranks/rank_messages.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using Finish = std::function<v1::VerbResult()>;

/// Of a verb that the ranks have; `stop` as in VerbInFlight.
struct Started {
  Started(Finish by, std::shared_ptr<Operations::Stoppable> until = nullptr)
      : finish(std::move(by)), stop(std::move(until)) {}
  Finish finish;
  std::shared_ptr<Operations::Stoppable> stop;
  Hold weights;  ///< as in VerbInFlight
};

/// The ranks leave the command of a loss between two parts of its work.
class LossStop final : public Operations::Stoppable {
 public:
  explicit LossStop(Answer<v1::LossOutput> answer) : answer_(std::move(answer)) {}
  bool request_stop() override { return answer_.request_stop(); }

 private:
  const Answer<v1::LossOutput> answer_;
};

Started finish_loss(const Answer<v1::LossOutput>& answer) {
  return {[answer] {
            v1::VerbResult result;
            *result.mutable_loss() = answer.get();
            return result;
          },
          std::make_shared<LossStop>(answer)};
}

Finish finish_nothing(const Answer<void>& answer) {
  return [answer] {
    answer.get();
    return v1::VerbResult();
  };
}

/// What a verb takes: its own message, or that which its upload holds.
template <typename Message>
Message data_of(const std::string& upload, Message& own, const LaunchContext& context) {
  if (upload.empty()) return std::move(own);
  const std::string bytes =
      context.uploads.take(run_resource(context.run), parse_upload_name(upload));
  Message message;
  if (!message.ParseFromString(bytes))
    base::refuse_field("upload", "\"{}\" holds no {} of {} bytes", upload, message.GetTypeName(),
                       bytes.size());
  return message;
}

/// The batch of a verb, with the tokens of the text that it names.
template <typename Request>
void set_batch(Request& verb, const LaunchContext& context, v1::LossCommand* command) {
  *command->mutable_batch() = data_of(verb.upload(), *verb.mutable_batch(), context);
  if (!command->batch().has_reference()) return;
  set_tokenized(context.caller.tokenize(command->mutable_batch()->mutable_reference()), command);
}

Started start(v1::ForwardBackwardRequest& verb, const LaunchContext& context) {
  v1::LossCommand command;
  command.set_backward(true);
  try {
    set_batch(verb, context, &command);
    return finish_loss(context.ranks.loss(std::move(command), context.rules));
  } catch (const InvalidArgument& refused) {
    context.ranks.poison(refused.what());
    return Finish([refused]() -> v1::VerbResult { throw refused; });
  }
}

Started start(v1::ForwardRequest& verb, const LaunchContext& context) {
  v1::LossCommand command;
  set_batch(verb, context, &command);
  command.set_train(verb.train());
  return finish_loss(context.ranks.loss(std::move(command), context.rules));
}

Finish start(const v1::OptimStepRequest& verb, const LaunchContext& context) {
  return [answer = context.ranks.apply_gradients(verb.params())] {
    v1::VerbResult result;
    *result.mutable_optim_step() = answer.get().output();
    return result;
  };
}

Finish start(const v1::SaveStateRequest& verb, const LaunchContext& context) {
  const std::string name = state_resource(context.run, verb.name());
  if (!verb.overwrite() && context.store.find_state(name))
    throw AlreadyExists(fmt::format("{} exists already; choose another name, or overwrite", name),
                        "STATE_EXISTS", {{"state", name}, {"field", "name"}});
  context.states.check_room(verb);
  v1::SavedState saved;
  saved.set_name(name);
  saved.set_epoch(context.epoch);
  saved.set_seq(verb.id().seq());
  saved.set_next_seq(verb.id().seq() + 1);
  saved.set_create_time(base::now_rfc3339());
  saved.set_folder(saved_state_folder(context.run, verb.name(), context.epoch, verb.id().seq()));
  saved.set_ttl_seconds(verb.ttl_seconds());
  *saved.mutable_user_metadata() = verb.user_metadata();
  v1::WriteStateCommand command;
  command.set_folder(context.states.folder_of(saved).string());
  *command.mutable_user_metadata() = verb.user_metadata();
  return [answer = context.ranks.write_state(std::move(command)), saved,
          &states = context.states]() mutable {
    saved.set_step(answer.get().step());
    v1::VerbResult result;
    *result.mutable_saved_state() = states.keep(std::move(saved));
    return result;
  };
}

Finish start(const v1::LoadStateRequest& verb, const LaunchContext& context) {
  const v1::SavedState state = context.store.state(verb.state());
  return finish_nothing(
      context.ranks.load_state(context.states.folder_of(state), verb.without_optimizer()));
}

Started start(const v1::SaveWeightsRequest& verb, const LaunchContext& context) {
  v1::SavedWeights saved;
  saved.set_name(weights_resource(context.run, verb.name()));
  saved.set_epoch(context.epoch);
  saved.set_seq(verb.id().seq());
  saved.set_storage(v1::WEIGHTS_STORAGE_DISK);
  Hold claim = context.weights.claim(saved.name());
  RunWeights::SnapshotPtr snapshot;
  std::optional<Answer<void>> written;
  if (verb.storage() == v1::WEIGHTS_STORAGE_MEMORY) {
    saved.set_storage(v1::WEIGHTS_STORAGE_MEMORY);
    snapshot = context.weights.keep_snapshot(verb.name(), context.resolved);
  } else {
    saved.set_folder(saved_weights_folder(context.run, verb.name()));
    const fs::path folder = context.weights.folder_of(verb.name());
    fs::create_directories(folder.parent_path());
    // No record knows of it: weights that were deleted, whose folder could not be removed then.
    fs::remove_all(folder);
    written = context.ranks.export_hf(folder, verb.dtype().empty() ? "float32" : verb.dtype());
  }
  Started started(Finish(
      [written, saved, snapshot, &weights = context.weights, &caller = context.caller]() mutable {
        if (written)
          written->get();
        else
          snapshot->wait();
        v1::VerbResult result;
        *result.mutable_saved_weights() = caller.at_step(saved);
        weights.keep(result.saved_weights(), std::move(snapshot));
        return result;
      }));
  started.weights = std::move(claim);
  return started;
}

Finish start(const v1::GetParametersRequest& verb, const LaunchContext& context) {
  v1::GetParametersCommand command;
  *command.mutable_names() = verb.names();
  return [answer = context.ranks.get_parameters(std::move(command))] {
    v1::VerbResult result;
    *result.mutable_parameters() = answer.get();
    return result;
  };
}

Finish start(v1::SetParametersRequest& verb, const LaunchContext& context) {
  v1::ParameterValues own;
  own.mutable_parameters()->Swap(verb.mutable_parameters());
  v1::ParameterValues values = data_of(verb.upload(), own, context);
  v1::SetParametersCommand command;
  command.mutable_parameters()->Swap(values.mutable_parameters());
  return finish_nothing(context.ranks.set_parameters(std::move(command)));
}

Finish start(const v1::SkipRequest&, const LaunchContext&) {
  return [] { return v1::VerbResult(); };
}

}  // namespace

VerbInFlight launch(const LaunchContext& context, Verb& verb) {
  VerbInFlight launched{verb.operation, id_of(verb.request).seq(), adds_gradients(verb.request)};
  launched.drops_gradients = std::holds_alternative<v1::LoadStateRequest>(verb.request) ||
                             std::holds_alternative<v1::SetParametersRequest>(verb.request);
  if (const auto* load = std::get_if<v1::LoadStateRequest>(&verb.request))
    launched.loaded_step =
        load->without_optimizer() ? 0 : context.store.state(load->state()).step();
  if (const std::string upload = upload_of(verb.request); !upload.empty()) {
    launched.upload_bytes =
        context.uploads.size_of(run_resource(context.run), parse_upload_name(upload));
    launched.upload_memory = context.budget.hold_upload(launched.upload_bytes);
  }
  Started started =
      std::visit([&](auto& request) -> Started { return start(request, context); }, verb.request);
  launched.finish = std::move(started.finish);
  launched.stop = std::move(started.stop);
  launched.weights = std::move(started.weights);
  return launched;
}

}  // namespace meshloom::control
