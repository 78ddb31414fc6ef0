// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/validation_progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

std::string path_of(const v1::RunConfig& config, const std::string& set) {
  for (const v1::ValidationSet& known : config.validation().sets())
    if (known.name() == set) return known.path();
  return config.data().validation_path();
}

}  // namespace

double validation_loss(const v1::ValidationMetrics& metrics, const std::string& set) {
  if (set.empty()) return metrics.loss();
  for (const v1::SetLoss& of : metrics.sets())
    if (of.set() == set) return of.loss();
  return std::numeric_limits<double>::quiet_NaN();
}

void count_validation(const v1::RunConfig& config, const v1::ValidationMetrics& metrics,
                      v1::ValidationProgress* progress) {
  if (!config.training().has_early_stopping()) return;
  if (progress->has_step() && metrics.step() <= progress->step()) return;
  const v1::EarlyStoppingConfig& stopping = config.training().early_stopping();
  const double loss = validation_loss(metrics, stopping.validation_set());
  progress->set_step(metrics.step());
  const bool better = progress->has_best_loss()
                          ? loss < progress->best_loss() - stopping.min_delta()
                          : !std::isnan(loss);
  progress->set_not_better(better ? 0 : progress->not_better() + 1);
  if (!better) return;
  progress->set_best_loss(loss);
  progress->set_best_step(metrics.step());
}

std::string early_stop_reason(const v1::RunConfig& config, const v1::ValidationProgress& progress) {
  if (!config.training().has_early_stopping()) return {};
  const v1::EarlyStoppingConfig& stopping = config.training().early_stopping();
  if (progress.not_better() < stopping.patience()) return {};
  const std::string set = stopping.validation_set().empty()
                              ? std::string()
                              : fmt::format(" on {}", stopping.validation_set());
  const std::string best =
      progress.has_best_loss()
          ? fmt::format("the best is {:.4f} of step {}", progress.best_loss(), progress.best_step())
          : std::string("none was a number");
  return fmt::format(
      "early stopping: the validation loss{} has not fallen{} in {} validations, {}", set,
      stopping.min_delta() > 0 ? fmt::format(" by more than {:g}", stopping.min_delta()) : "",
      progress.not_better(), best);
}

bool add_best(const v1::RunConfig& config, const v1::ValidationMetrics& metrics,
              v1::ValidationProgress* progress) {
  const int most = config.checkpoint().keep_best();
  const double loss = validation_loss(metrics, config.checkpoint().validation_set());
  if (most == 0 || metrics.step() == 0 || std::isnan(loss)) return false;
  std::vector<v1::BestCheckpoint> best(progress->best().begin(), progress->best().end());
  std::erase_if(best, [&](const v1::BestCheckpoint& of) { return of.step() == metrics.step(); });
  const auto place = std::find_if(best.begin(), best.end(),
                                  [&](const v1::BestCheckpoint& of) { return loss < of.loss(); });
  if (place - best.begin() >= most) return false;
  v1::BestCheckpoint added;
  added.set_step(metrics.step());
  added.set_loss(loss);
  best.insert(place, added);
  if (best.size() > static_cast<std::size_t>(most)) best.resize(static_cast<std::size_t>(most));
  progress->mutable_best()->Assign(best.begin(), best.end());
  return true;
}

bool counts_alike(const v1::RunConfig& a, const v1::RunConfig& b) {
  const auto key = [](const v1::RunConfig& config) {
    const std::string& set = config.training().early_stopping().validation_set();
    return std::tuple(config.training().has_early_stopping(), set, path_of(config, set),
                      config.data().validation_split(), config.validation().steps());
  };
  return key(a) == key(b);
}

bool follow_edit(const v1::RunConfig& before, const v1::RunConfig& after,
                 v1::ValidationProgress* progress) {
  const v1::CheckpointConfig& kept = after.checkpoint();
  const bool same_best = before.checkpoint().validation_set() == kept.validation_set() &&
                         before.validation().steps() == after.validation().steps();
  const int most = same_best ? kept.keep_best() : 0;
  if (progress->best_size() > most)
    progress->mutable_best()->DeleteSubrange(most, progress->best_size() - most);
  if (counts_alike(before, after)) return false;
  const bool begun = progress->has_step();
  v1::ValidationProgress fresh;
  fresh.mutable_best()->Swap(progress->mutable_best());
  *progress = std::move(fresh);
  return begun;
}

}  // namespace meshloom::train
