// SPDX-License-Identifier: Apache-2.0
// The losses of runs that a client drives, by name: per token, from log-probs, on the host.
//
// lp is the log-prob of a target under the weights of the run, q the one that the client gives, A
// the advantage, r = exp(lp - q), clip(x) = min(max(x, low), high) with the ratios
// clip_low_threshold and clip_high_threshold, w a weight, sg(x) the value of x without its
// gradient:
//
//   cross_entropy        -sum over a token's targets of w lp
//   importance_sampling  -r A
//   ppo                  -min(r A, clip(r) A)
//   cispo                -sg(clip(r)) lp A
//   dro                  -(lp A - beta / 2 (lp - q)^2)
//   gspo                 -min(s A, clip(s) A), s = exp(mean of lp - q where the mask is not 0) for
//                        all tokens of a datum; its gradient is that of sg(s) exp(lp - sg(lp))
//
// lp - q is not clamped. Sources: Schulman et al., "Proximal Policy Optimization Algorithms", 2017;
// MiniMax, "MiniMax-M1", 2025 (cispo); Richemond et al., "Offline Regularised Reinforcement
// Learning for Large Language Models Alignment", 2024 (dro); Zheng et al., "Group Sequence Policy
// Optimization", 2025.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "v1/step.pb.h"

namespace meshloom::train {

struct OfferedLoss {
  std::string name;
  std::vector<std::string> config_keys;
};
/// Returns the losses that a verb may name, out of the table by which a name is read.
std::vector<OfferedLoss> offered_losses();

enum class LossKind { kCrossEntropy, kImportanceSampling, kPpo, kCispo, kDro, kGspo };

/// TokenLoss is a loss with its config.
struct TokenLoss {
  LossKind kind = LossKind::kCrossEntropy;
  double clip_low = 0.0, clip_high = 0.0;  ///< ppo, cispo and gspo
  double beta = 0.0;                       ///< dro

  /// It has weights and takes no q and advantages.
  bool weighted() const { return kind == LossKind::kCrossEntropy; }
};

/// Throws InvalidArgument with the field "loss" for an unknown name, and "loss_config[KEY]" for a
/// key that the loss has no use for or a value out of range (clip_high_threshold may be infinite).
TokenLoss make_token_loss(const std::string& name, const std::map<std::string, double>& config);
const char* loss_name(LossKind kind);

/// DatumLoss is the loss of one datum.
struct DatumLoss {
  std::vector<double> losses;     ///< N
  std::vector<double> gradients;  ///< of their sum by each log-prob, as these
};
/// `log_probs`: of the datum's targets, in their order. The datum fits the loss
/// (check_loss_batch). Values may be NaN or infinite (check_finite).
DatumLoss datum_loss(const TokenLoss& loss, const v1::Datum& datum,
                     std::span<const float> log_probs);

/// Throws NumericError (NON_FINITE_LOSS), naming datum, token and the loss's config, for the first
/// log-prob, ratio or loss that is NaN or infinite. `datum` is number `index` of its batch.
void check_finite(const TokenLoss& loss, const v1::Datum& datum, std::size_t index,
                  std::span<const float> log_probs, const DatumLoss& result);

/// Sums over data.
class LossMetrics {
 public:
  void add(const TokenLoss& loss, const v1::Datum& datum, std::span<const float> log_probs,
           const DatumLoss& result);
  /// Returns "loss:sum" and "tokens:sum" (counted_tokens). For losses with q, over the tokens that
  /// count (advantage, or the mask of gspo, is not 0): "kl:sum", the sum of q - lp, which estimates
  /// the divergence of the run from where q comes from if tokens were drawn there; and but for dro
  /// "ratio:min" and "ratio:max" of r (of s for gspo), if a token counts.
  std::map<std::string, double> values(const TokenLoss& loss) const;

 private:
  double loss_ = 0.0, tokens_ = 0.0, kl_ = 0.0;
  double ratio_min_ = std::numeric_limits<double>::infinity(), ratio_max_ = 0.0;
};

/// Returns how many targets there are whose weight is not 0; all of them for a loss without
/// weights.
std::int64_t counted_tokens(const TokenLoss& loss, const v1::Datum& datum);

}  // namespace meshloom::train
