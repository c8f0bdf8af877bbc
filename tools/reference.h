// The known answers of a training case: reference.json, read and held against itself before anything runs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/json.h"

namespace epl::tools {

inline constexpr double loss_tolerance = 1e-4, norm_tolerance = 1e-3;
inline constexpr double float64_tolerance = 1e-9;  // of every number, where the engine computes in float64 too
inline constexpr double widest_loss_tolerance = 1e-3, widest_norm_tolerance = 1e-2;

using Norms = std::map<std::string, double>;

class Reference {
 public:
  // Throws a UsageError that names the file and what it lacks, misspells or contradicts.
  // `float64`: it is compared with a run in float64.
  explicit Reference(const std::string& folder, bool float64 = false);

  std::string loss, optimizer;
  std::vector<double> losses;
  std::vector<std::string> trainable;
  std::vector<std::vector<std::string>> tied;  // names of one tensor
  Norms gradients, parameters, buffers;
  std::set<std::string> without_gradient;  // trainable names that have none: PyTorch's is None
  // Parameters whose true gradient is zero, so that a step of theirs is rounding, and buffers that are zero in truth.
  std::set<std::string> insensitive;
  std::set<std::string> missing;              // names that the exporter left out of the file
  std::map<std::string, int64_t> batch_dims;  // by input; -1: no samples
  double lr = 0;

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& json() const { return json_; }
  // How far a loss, a final norm may be from the reference: as far as PyTorch's own float32 is, within bounds.
  double loss_tolerance_at(size_t step) const;
  double tolerance_of(const std::string& parameter) const;
  double tolerance_of_norms() const { return float64_ ? float64_tolerance : norm_tolerance; }

 private:
  const Json& need(const char* key) const;
  std::vector<double> numbers(const char* key) const;
  std::vector<std::string> names(const char* key) const;
  Norms norms(const Json& table, const std::string& what) const;
  void check_spelling() const;
  void check_names();
  [[noreturn]] void reject(const std::string& why) const;

  std::string path_;
  bool float64_;
  Json json_;
  std::vector<double> losses_f32_;
  std::vector<Norms> parameters_f32_;  // by order of summation
};

}  // namespace epl::tools
