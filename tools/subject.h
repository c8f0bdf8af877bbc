// Something to train again and again from its start, under one layout and another: a random graph, a model, a case.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/case.h"
#include "tools/layouts.h"
#include "tools/trained.h"

namespace epl::tools {

class Subject {
 public:
  virtual ~Subject() = default;
  // The shell command that makes it again, or its name.
  virtual std::string said() const = 0;
  // The same with less to compute; null where there is nothing less.
  virtual std::unique_ptr<Subject> smaller() const { return nullptr; }

  // Trains some steps. `job` says ranks and threads.
  Trained train(const Layout& layout, const SameBits& common);
  std::string strategy(const Layout& layout, const SameBits& common) const {
    return print_json(strategy_of(layout, common, nodes_));
  }
  int64_t batch() const { return batch_; }
  // What the plan without a strategy was refused with; empty where there is one.
  const std::string& unusable() const { return unusable_; }
  // A sum in another order may be seen in what is compared: no optimizer that divides by what is only rounding.
  virtual void expect_rounding() = 0;

 protected:
  virtual OpenedCase open(const JobOptions& job) = 0;
  // The raw batches of `steps` steps.
  struct Raw {
    int32_t dtype;
    std::vector<int64_t> dims;
    std::vector<std::byte> bytes;
  };
  virtual std::vector<Raw> batch_at(const OpenedCase& opened, const std::vector<Port>& inputs, int64_t step) = 0;
  // After construction, and whenever what `open` gives has changed.
  void prepare(int64_t steps);

 private:
  std::vector<std::vector<Raw>> batches_;
  std::vector<std::string> nodes_;
  int64_t batch_ = 0;
  std::string unusable_;
};

// Drawn by `seed`: structure, loss, optimizer, batch and data. `blocks`: 0 for as many as the seed says.
std::unique_ptr<Subject> random_graph(uint64_t seed, int64_t blocks, const std::string& folder);
// Of a file, with data drawn by `seed`; integers are below `integers`.
std::unique_ptr<Subject> model_of(const JobOptions& job, uint64_t seed, int64_t integers);
std::unique_ptr<Subject> case_of(const std::string& folder);

}  // namespace epl::tools
