// What a model is measured on while it learns: data that it does not train on.
#pragma once

#include "tools/job.h"
#include "tools/listener.h"

namespace epl::tools {

struct ValidationOptions {
  int64_t every = 0;          // steps between measurements; 0: a quarter of all
  int64_t batches = 40;       // of the held-out text, at most
};
void add_validation_options(CLI::App& app, ValidationOptions& o);

class Validation {
 public:
  // The dataset is bound to the plan's train entry, whose inputs evaluation takes as well.
  Validation(const ValidationOptions& o, const Plan& plan, const Session& session, const DataFiles& data)
      : o_(o), plan_(plan), session_(session), data_(data) {}
  bool any() const { return static_cast<bool>(data_.held_out); }
  // Whether to measure after `step` of `steps`; at the end it is measured in any case.
  bool due(int64_t step, int64_t steps) const;
  int64_t batches() const;
  Evaluated measure();

 private:
  const ValidationOptions& o_;
  const Plan& plan_;
  const Session& session_;
  const DataFiles& data_;
};

}  // namespace epl::tools
