// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/step_values.h"

#include "daemon/base/field_checks.h"

namespace meshloom::train {

StepValues step_values(const v1::OptimStepParams& given, const v1::OptimizerConfig& optimizer,
                       double max_norm) {
  const auto refuse = [&](bool is_given, const char* field) {
    if (is_given)
      base::refuse_field(field, "an optimizer of type {} has no use for it",
                         v1::OptimizerType_Name(optimizer.type()));
  };
  if (optimizer.type() != v1::OPTIMIZER_TYPE_SGD) {
    refuse(given.has_momentum(), "momentum");
  } else {
    refuse(given.has_beta1(), "beta1");
    refuse(given.has_beta2(), "beta2");
    refuse(given.has_eps(), "eps");
    if (given.momentum() != 0.0 && optimizer.momentum() == 0.0)
      base::refuse_field("momentum", "{}, but the run's optimizer was made without momentum",
                         given.momentum());
    if (given.has_momentum() && given.momentum() == 0.0 && optimizer.nesterov())
      base::refuse_field("momentum", "nesterov needs a momentum above 0");
  }
  StepValues values;
  values.lr = given.has_lr() ? given.lr() : optimizer.lr();
  values.max_norm = given.has_grad_clip_norm() ? given.grad_clip_norm() : max_norm;
  OptimizerValues& of = values.optimizer;
  of.beta1 = given.has_beta1() ? given.beta1() : optimizer.beta1();
  of.beta2 = given.has_beta2() ? given.beta2() : optimizer.beta2();
  of.eps = given.has_eps() ? given.eps() : optimizer.eps();
  of.weight_decay = given.has_weight_decay() ? given.weight_decay() : optimizer.weight_decay();
  of.momentum = given.has_momentum() ? given.momentum() : optimizer.momentum();
  base::check_range("lr", values.lr, 0.0, 1e6);
  base::check_range("beta1", of.beta1, 0.0, 1.0, true);
  base::check_range("beta2", of.beta2, 0.0, 1.0, true);
  base::check_range("eps", of.eps, 0.0, 1.0);
  base::check_range("weight_decay", of.weight_decay, 0.0, 1e6);
  base::check_range("momentum", of.momentum, 0.0, 1.0, true);
  base::check_range("grad_clip_norm", values.max_norm, 0.0, 1e30);
  return values;
}

}  // namespace meshloom::train
