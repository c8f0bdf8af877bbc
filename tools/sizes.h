// What the command line says of the sizes that a model leaves open: --shape, --symbol, --batch-dim.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/job.h"

namespace epl::tools {

// An input of the model. An open dimension has the size -1 and a name: that of the file, or its position ("x[2]").
struct ModelInput : Port {
  std::vector<std::string> symbols;
  bool ranked = true;                 // false: neither the file nor --shape says how many dimensions it has
  std::string symbolic_text() const;  // "f32[batch,3,x[2],x[3]]"
};
std::vector<ModelInput> inputs_of(const Model& model);

// NAME=VALUE of an option that may be repeated, by name. `lists`: several of them with commas between.
std::map<std::string, std::string> named(const std::string& option, const std::vector<std::string>& texts,
                                         const std::string& expected, bool lists = false);
bool read_integer(const std::string& text, int64_t& out);

// The dimension of an input that counts samples, -1 for none.
std::map<std::string, int64_t> batch_dims_of(const JobOptions& o);
int64_t batch_dim(const Port& port, const std::map<std::string, int64_t>& dims);

// The sizes of --symbol and --shape. What contradicts the model, or one another, is an error that says how.
class SaidSizes {
 public:
  SaidSizes(const Model& model, const JobOptions& o);
  // Of a dimension; -1 where nothing is said of it.
  int64_t of(const ModelInput& input, size_t dim) const;
  int64_t of(const std::string& input, size_t dim) const;
  const std::map<std::string, int64_t>& symbols() const { return symbols_; }
  // Of the model, with the number of dimensions that --shape gives them.
  const std::vector<ModelInput>& inputs() const { return inputs_; }
  // What is given to an input of data must have the sizes of its --shape.
  void check_data(const std::string& input, const Port& field) const;

 private:
  void add(ModelInput& input, const std::string& text, const JobOptions& o);

  std::map<std::string, int64_t> symbols_;              // by name
  std::map<std::string, std::vector<int64_t>> shapes_;  // by input; -1: left open
  std::vector<ModelInput> inputs_;
};

// Whether an option says anything of sizes.
bool says_sizes(const JobOptions& o);

// The error about dimensions that nothing says the size of: it ends with the option to type. `sizes`: what is known.
[[noreturn]] void refuse_open(const std::vector<ModelInput>& inputs, const std::map<std::string, int64_t>& symbols,
                              const std::vector<std::vector<int64_t>>& sizes);

}  // namespace epl::tools
