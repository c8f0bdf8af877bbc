// A training case as it runs: its folder opened, its trainer as the reference says, and sessions one after another.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "tools/case.h"

namespace epl::tools {

// One case: a folder with model.onnx, train.safetensors and reference.json.
class CaseRun {
 public:
  CaseRun(const CheckOptions& o, const std::string& folder)
      : o_(o), job_(o.job), folder_(folder), reference_(folder, o.precision == "f64") {}

  OpenedCase opened();

 protected:
  void open();
  // A plan and a session, which may report the norms of gradients.
  void start(bool gradient_norms);
  void begin_session();
  // Names that processes have put at a rendezvous stay there, so each session has one of its own.
  Session new_session();
  // One step with the dataset's next batch.
  epl_metrics step();
  // A parameter's name in this file: exporters keep one name of those that share a tensor.
  std::string name_here(const std::string& name, const std::set<std::string>& there) const;
  Trainer trainer();
  // A parameter that the file does not have: exporters leave out what no output depends on.
  bool is_absent(const std::string& name) const;
  // An evaluation may need more memory than a step, so there is one first.
  void measure(int64_t& planned, int64_t& measured) const;
  std::string hash() const;

  const CheckOptions& o_;
  JobOptions job_;
  std::string folder_;
  Reference reference_;
  Json optimizer_ = Json::object();  // what the engine says of it
  Engine engine_;
  Model model_;
  Dataset dataset_;
  Store store_;
  Plan plan_;
  Session session_;
  int64_t sessions_ = 0;
  std::set<std::string> state_;

 private:
  // Exactly what the reference trained is trained.
  void choose_parameters(const Trainer& made) const;
};

}  // namespace epl::tools
