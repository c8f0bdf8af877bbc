// The handles above tensors: what each shows, shared with whatever was made from it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/capi/handle.h"
#include "core/ir/model.h"
#include "core/strategy/strategy.h"
#include "core/train/train_step.h"

struct epl_model {
  epl::capi::Counted counted;
  std::shared_ptr<epl::capi::Engine> engine;
  std::shared_ptr<const epl::Model> model;
  bool rewrites = true;
};

// What a host has set, as text: the types of options are known once loss and optimizer are, in any order of the calls.
struct epl_trainer {
  using Texts = std::vector<std::pair<std::string, std::string>>;
  struct Group {
    std::vector<std::string> patterns;
    Texts options;
    bool frozen = false;
  };
  epl::capi::Counted counted;
  mutable epl::capi::OneCaller caller;
  std::shared_ptr<epl::capi::Engine> engine;
  std::string loss = "softmax_cross_entropy", loss_output;
  std::string optimizer = "sgd";
  Texts loss_options, optimizer_options;
  std::vector<Group> groups;
  epl::LearningRateSchedule schedule;
  double clip_norm = 0;
  bool report_gradient_norms = false;
  epl::Binding binding;
  std::map<std::string, epl::DType> input_types;   // those given with a type, "target" among them
};

struct epl_strategy {
  epl::capi::Counted counted;
  epl::capi::OneCaller caller;
  std::shared_ptr<epl::capi::Engine> engine;
  epl::Strategy strategy;
};

namespace epl::capi {

// The trainer's texts as typed options; an error names the key.
Result<TrainOptions> resolve_trainer(const epl_trainer& trainer);

}  // namespace epl::capi
