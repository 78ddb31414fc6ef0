// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb_launch.h"

#include <filesystem>

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
  Started(Finish by, std::function<bool()> until = nullptr)
      : finish(std::move(by)), stop(std::move(until)) {}
  Finish finish;
  std::function<bool()> stop;
  Hold weights;  ///< as in VerbInFlight
};

Started finish_loss(const Answer<v1::LossOutput>& answer) {
  return {[answer] {
            v1::VerbResult result;
            *result.mutable_loss() = answer.get();
            return result;
          },
          [answer] { return answer.request_stop(); }};
}

Finish finish_nothing(const Answer<void>& answer) {
  return [answer] {
    answer.get();
    return v1::VerbResult();
  };
}

/// What a verb takes: its own message, or that which its upload holds.
template <typename Message>
Message data_of(const std::string& upload, Message& own, const VerbPlace& place) {
  if (upload.empty()) return std::move(own);
  const std::string bytes = place.uploads.take(run_resource(place.run), parse_upload_name(upload));
  Message message;
  if (!message.ParseFromString(bytes))
    base::refuse_field("upload", "\"{}\" holds no {} of {} bytes", upload, message.GetTypeName(),
                       bytes.size());
  return message;
}

/// The batch of a verb, with the tokens of the text that it names.
template <typename Request>
void set_batch(Request& verb, const VerbPlace& place, v1::LossCommand* command) {
  *command->mutable_batch() = data_of(verb.upload(), *verb.mutable_batch(), place);
  if (!command->batch().has_reference()) return;
  set_tokenized(place.tokenize(command->mutable_batch()->mutable_reference()), command);
}

Started start(const RunClient& run, v1::ForwardBackwardRequest& verb, const VerbPlace& place) {
  v1::LossCommand command;
  command.set_backward(true);
  try {
    set_batch(verb, place, &command);
    return finish_loss(run.loss(std::move(command), place.rules));
  } catch (const InvalidArgument& refused) {
    run.poison(refused.what());
    return Finish([refused]() -> v1::VerbResult { throw refused; });
  }
}

Started start(const RunClient& run, v1::ForwardRequest& verb, const VerbPlace& place) {
  v1::LossCommand command;
  set_batch(verb, place, &command);
  command.set_train(verb.train());
  return finish_loss(run.loss(std::move(command), place.rules));
}

Finish start(const RunClient& run, const v1::OptimStepRequest& verb, const VerbPlace&) {
  return [answer = run.apply_gradients(verb.params())] {
    v1::VerbResult result;
    *result.mutable_optim_step() = answer.get().output();
    return result;
  };
}

Finish start(const RunClient& run, const v1::SaveStateRequest& verb, const VerbPlace& place) {
  const std::string name = state_resource(place.run, verb.name());
  if (!verb.overwrite() && place.store.find_state(name))
    throw AlreadyExists(fmt::format("{} exists already; choose another name, or overwrite", name),
                        "STATE_EXISTS", {{"state", name}, {"field", "name"}});
  place.check_state_room(verb);
  v1::SavedState saved;
  saved.set_name(name);
  saved.set_epoch(place.epoch);
  saved.set_seq(verb.id().seq());
  saved.set_next_seq(verb.id().seq() + 1);
  saved.set_create_time(base::now_rfc3339());
  saved.set_folder(saved_state_folder(place.run, verb.name(), place.epoch, verb.id().seq()));
  saved.set_ttl_seconds(verb.ttl_seconds());
  *saved.mutable_user_metadata() = verb.user_metadata();
  v1::WriteStateCommand command;
  command.set_folder((place.state.root() / saved.folder()).string());
  *command.mutable_user_metadata() = verb.user_metadata();
  return [answer = run.write_state(std::move(command)), saved, keep = place.keep_state]() mutable {
    saved.set_step(answer.get().step());
    v1::VerbResult result;
    *result.mutable_saved_state() = keep(std::move(saved));
    return result;
  };
}

Finish start(const RunClient& run, const v1::LoadStateRequest& verb, const VerbPlace& place) {
  const v1::SavedState state = place.store.state(verb.state());
  return finish_nothing(
      run.load_state(place.state.root() / state.folder(), verb.without_optimizer()));
}

Started start(const RunClient& run, const v1::SaveWeightsRequest& verb, const VerbPlace& place) {
  v1::SavedWeights saved;
  saved.set_name(weights_resource(place.run, verb.name()));
  saved.set_epoch(place.epoch);
  saved.set_seq(verb.id().seq());
  saved.set_storage(v1::WEIGHTS_STORAGE_DISK);
  Hold claim = place.claim_weights(saved.name());
  std::shared_ptr<const RunSnapshot> snapshot;
  std::optional<Answer<void>> written;
  if (verb.storage() == v1::WEIGHTS_STORAGE_MEMORY) {
    saved.set_storage(v1::WEIGHTS_STORAGE_MEMORY);
    snapshot = place.keep_snapshot(verb.name());
  } else {
    saved.set_folder(saved_weights_folder(place.run, verb.name()));
    const fs::path folder = place.state.root() / saved.folder();
    fs::create_directories(folder.parent_path());
    // No record knows of it: weights that were deleted, whose folder could not be removed then.
    fs::remove_all(folder);
    written = run.export_hf(folder, verb.dtype().empty() ? "float32" : verb.dtype());
  }
  Started started(Finish([written, saved, snapshot, keep = place.keep_weights]() mutable {
    if (written)
      written->get();
    else
      snapshot->wait();
    v1::VerbResult result;
    *result.mutable_saved_weights() = keep(std::move(saved), std::move(snapshot));
    return result;
  }));
  started.weights = std::move(claim);
  return started;
}

Finish start(const RunClient& run, const v1::GetParametersRequest& verb, const VerbPlace&) {
  v1::GetParametersCommand command;
  *command.mutable_names() = verb.names();
  return [answer = run.get_parameters(std::move(command))] {
    v1::VerbResult result;
    *result.mutable_parameters() = answer.get();
    return result;
  };
}

Finish start(const RunClient& run, v1::SetParametersRequest& verb, const VerbPlace& place) {
  v1::ParameterValues own;
  own.mutable_parameters()->Swap(verb.mutable_parameters());
  v1::ParameterValues values = data_of(verb.upload(), own, place);
  v1::SetParametersCommand command;
  command.mutable_parameters()->Swap(values.mutable_parameters());
  return finish_nothing(run.set_parameters(std::move(command)));
}

Finish start(const RunClient&, const v1::SkipRequest&, const VerbPlace&) {
  return [] { return v1::VerbResult(); };
}

}  // namespace

VerbInFlight launch(const RunClient& run, Verb& verb, const VerbPlace& place) {
  VerbInFlight launched{verb.operation, id_of(verb.request).seq(), adds_gradients(verb.request)};
  launched.drops_gradients = std::holds_alternative<v1::LoadStateRequest>(verb.request) ||
                             std::holds_alternative<v1::SetParametersRequest>(verb.request);
  if (const auto* load = std::get_if<v1::LoadStateRequest>(&verb.request))
    launched.loaded_step = load->without_optimizer() ? 0 : place.store.state(load->state()).step();
  if (const std::string upload = upload_of(verb.request); !upload.empty()) {
    launched.upload_bytes =
        place.uploads.size_of(run_resource(place.run), parse_upload_name(upload));
    launched.upload_memory = place.hold_upload(launched.upload_bytes);
  }
  Started started = std::visit([&](auto& request) -> Started { return start(run, request, place); },
                               verb.request);
  launched.finish = std::move(started.finish);
  launched.stop = std::move(started.stop);
  launched.weights = std::move(started.weights);
  return launched;
}

}  // namespace meshloom::control
