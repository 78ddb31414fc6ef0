// SPDX-License-Identifier: Apache-2.0
// Optimizer: AdamW, Adam and SGD over all parameters of a model in one fused pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/module.h"
#include "daemon/train/files/state_tensor.h"
#include "daemon/train/optim/parameter_groups.h"
#include "kernels/backend.h"
#include "v1/config.pb.h"

namespace meshloom::train {

struct OptimizerSettings {
  enum class Kind { kAdamW, kAdam, kSgd } kind = Kind::kAdamW;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  /// The decay says which parameters decay: all of them, those with two or more dims, or those that
  /// a pattern matches.
  enum class Decay { kAll, kMatrices, kPatterns } decay = Decay::kMatrices;
  std::vector<std::string> decay_patterns;
  std::vector<ParameterGroup> groups = {};
};

/// These values may be others in every step.
struct OptimizerValues {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;  ///< not 0 only if the settings' is not, which decides about its buffers
};

/// Makes the settings of a resolved config.
OptimizerSettings make_optimizer_settings(const v1::OptimizerConfig&);

/// If parameters are shards: which of them count in the global gradient norm on this rank, so
/// that over the ranks of `group` every element counts once.
struct NormGroup {
  comm::ProcessGroup* group = nullptr;  ///< null: every rank holds everything
  std::vector<bool> counted;            ///< one per parameter; empty: all
};

/// Holds float32 master weights (the parameters themselves if they are float32) and moments of
/// this rank's parameters or shards. Parameters that require no gradient are frozen: they have no
/// moments and stay as they are. Not thread-safe. Gradients are expected to be the global ones
/// already; the only collective is the norm's.
class Optimizer {
 public:
  /// `masters[i]`, if given, becomes parameter i's master weight and must be float32 of its
  /// shape; else bfloat16 parameters get a master converted from their value. Parameters outlive
  /// the optimizer. Throws InvalidArgument for a decay pattern that matches no parameter and as
  /// choose_groups, Unimplemented for dtypes other than float32 and bfloat16.
  Optimizer(ExecutionContext&, std::vector<nn::NamedParameter> parameters, const OptimizerSettings&,
            std::vector<Tensor> masters = {}, NormGroup norm_group = {});

  const OptimizerSettings& settings() const { return settings_; }
  /// Sets values that count from the next step on.
  void set_values(const OptimizerValues& values);
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  /// Tells whether parameter i is subject to the weight decay of the settings.
  bool decays(std::size_t i) const { return decays_[i]; }
  bool is_frozen(std::size_t i) const { return !parameters_[i].parameter->value.requires_grad(); }

  /// Multiplies all gradients. Waits for no device.
  void scale_gradients(double factor);
  /// Measures the global norm (root of the sum of squares) of all gradients. The next step
  /// multiplies them with min(1, max_norm / (norm + 1e-6)), in its own pass over them; max_norm 0:
  /// with 1. The ranks of the norm group call it together. Waits for no device.
  void clip(double max_norm);
  /// Updates masters, moments and working copies in step `number` (1 for the first, which decides
  /// the bias correction). Parameters without a gradient are left as they are. So are all of them
  /// if the norm that clip found is NaN or infinite, or `loss` is (float64 [1]; undefined: not
  /// asked). Waits for no device.
  void step(std::int64_t number, double lr, const Tensor& loss = {});
  /// Returns the norm that the last clip measured, before clipping: float32 [1], the same on every
  /// rank of the norm group. The next clip writes it anew.
  const Tensor& norm() const { return scalars_.norm; }
  /// Returns the index of this rank's first parameter whose gradient holds a NaN or infinity, or
  /// -1.
  std::int64_t first_nonfinite_gradient() const;
  /// Marks all gradients empty.
  void zero_grad();

  /// Returns the master weights and moments: "model.NAME", "optimizer.moment1.NAME",
  /// "optimizer.moment2.NAME" of those that are not frozen. Writing into them (loading) is followed
  /// by refresh_working_copies(). `specs`: how the ranks hold each parameter, one per parameter, or
  /// none if all hold all.
  std::vector<StateTensor> state(const std::vector<planner::SpecPtr>& specs = {}) const;
  void refresh_working_copies();
  /// Sets all moments to 0, as they are before the first step.
  void reset_moments();
  /// Returns the float32 master of parameter i.
  const Tensor& master(std::size_t i) const { return masters_[i]; }

 private:
  /// The kernels of a step read these from device memory, an element each.
  struct Scalars {
    Tensor sum_of_squares;     ///< float32, of this rank's counted gradients
    Tensor total;              ///< float64, over the norm group
    Tensor norm, grad_factor;  ///< float32
    std::vector<Tensor> lrs;   ///< float32, by slot of lr_factors_
    Tensor step;               ///< int64
  };

  /// Returns the gradient of parameter i on this rank; undefined if there is none or it is empty.
  Tensor gradient(std::size_t i) const;
  void place_groups();
  float weight_decay(std::size_t i) const;
  /// Returns the parameters of a slot of lr_factors_, as kernels step them. Parameters without a
  /// gradient are left out.
  std::vector<kernels::OptimizerTensor> tensors_to_step(std::size_t slot) const;

  ExecutionContext& context_;
  std::vector<nn::NamedParameter> parameters_;
  OptimizerSettings settings_;
  double momentum_;  ///< of the next step; the settings' decides about buffers
  std::vector<bool> decays_;
  std::vector<std::optional<std::size_t>> groups_;  ///< of each parameter
  std::vector<double> lr_factors_;                  ///< different ones; the first is 1
  std::vector<std::size_t> lr_slots_;               ///< of each parameter, in lr_factors_
  std::vector<Tensor> masters_, moments1_, moments2_;
  Scalars scalars_;
  bool clipped_ = false;  ///< the factor and norm are for the next step
  NormGroup norm_group_;
};

}  // namespace meshloom::train
