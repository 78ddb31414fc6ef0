// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/uses.h"

#include "daemon/control/stores/names.h"

namespace meshloom::control {

Hold Uses::hold(const std::string& name, const std::string& user) const {
  const std::lock_guard lock(state_->mutex);
  const auto held = state_->users.emplace(name, user);
  return Hold([state = state_, held] {
    const std::lock_guard releasing(state->mutex);
    state->users.erase(held);
  });
}

std::optional<std::string> Uses::holder_of(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->users.lower_bound(name);
  if (found == state_->users.end() || found->first != name) return std::nullopt;
  return found->second;
}

std::optional<std::string> Uses::holder_below(const std::string& prefix) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->users.lower_bound(prefix);
  if (found == state_->users.end() || !found->first.starts_with(prefix)) return std::nullopt;
  return found->second;
}

std::vector<std::string> Uses::holders_of(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> users;
  const auto [begin, end] = state_->users.equal_range(name);
  for (auto held = begin; held != end; ++held) users.push_back(held->second);
  return users;
}

std::optional<std::string> Uses::config_of(const ConfigTest& test) const {
  if (configs_.jobs)
    if (auto job = configs_.jobs(test)) return job;
  return config_beside_jobs(test);
}

std::optional<std::string> Uses::config_beside_jobs(const ConfigTest& test) const {
  for (const FindConfig* find : {&configs_.runs, &configs_.models})
    if (*find)
      if (auto user = (*find)(test)) return user;
  return std::nullopt;
}

std::optional<std::string> Uses::config_with_model(const std::string& id) const {
  return config_of([whole = model_resource(id), &id](const v1::RunConfig& config) {
    return config.model().name() == id || config.data().tokenizer() == whole;
  });
}

std::optional<std::string> Uses::config_with_plan(const std::string& id) const {
  return config_of([&id](const v1::RunConfig& config) { return config.plan().name() == id; });
}

std::optional<std::string> Uses::user_of_model(const std::string& id) const {
  const auto holder = holder_of(model_resource(id));
  return holder ? holder : config_with_model(id);
}

std::optional<std::string> Uses::user_of_plan(const std::string& id) const {
  const auto holder = holder_of(plan_resource(id));
  return holder ? holder : config_with_plan(id);
}

}  // namespace meshloom::control
