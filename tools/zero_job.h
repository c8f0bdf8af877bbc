// A model of a family that trains on zeros: for what a step takes, which hardly depends on its numbers.
#pragma once

#include <string>
#include <vector>

#include "tools/job.h"

namespace epl::tools {

struct ZeroJob {
  std::string family, options;  // of epl template
  int64_t batch = 8, ranks = 1;
  std::string strategy = "{}";
};

// A plan of it and a session. Each rank has one thread, because a table has the numbers of one.
class ZeroTraining {
 public:
  // `common`: the device, the packs and the cache. The model's file is written into the folder.
  ZeroTraining(const ZeroJob& job, const JobOptions& common, const std::string& folder);
  // Makes the memory of the step. Before it, only what a plan says is known.
  void begin();
  double step();                // its seconds
  Json record(int64_t steps);   // what Perfetto reads
  Json overview() const;        // of the plan
  int64_t input_bytes() const;  // of all inputs
  // Steps for so many seconds, one at least.
  std::vector<double> steps_for(double seconds);

 private:
  Engine engine_;
  Model model_;
  Plan plan_;
  Session session_;
  std::vector<TensorHandle> held_;
  std::vector<const epl_tensor*> inputs_;
};

}  // namespace epl::tools
