#include "frontends/onnx/weight_findings.h"

#include <algorithm>
#include <cmath>

namespace epl::onnx {
namespace {

using Level = ModelFinding::Level;

constexpr int64_t min_line = 16;                              // of fewer numbers nothing can be told
constexpr int64_t max_elements_looked_at = int64_t{1} << 22;  // of one tensor; tables are small
constexpr int64_t max_elements_of_all = int64_t{1} << 25;     // inspecting must not read gigabytes

// A matrix seen by rows, or, transposed, by columns.
class Lines {
 public:
  Lines(const epl::Tensor& value, int64_t rows, int64_t columns, bool by_column)
      : value_(value),
        columns_(columns),
        by_column_(by_column),
        count(by_column ? columns : rows),
        length(by_column ? rows : columns) {}
  double at(int64_t line, int64_t i) const {
    return value_.get(by_column_ ? i * columns_ + line : line * columns_ + i);
  }

 private:
  const epl::Tensor& value_;
  int64_t columns_;
  bool by_column_;

 public:
  int64_t count, length;
};

// Symmetric about its middle (or periodic about its start), from 0 to 1.
bool is_window(const Lines& x) {
  const int64_t n = x.length;
  double low = 1, high = 0;
  bool symmetric = true, periodic = true;
  for (int64_t i = 0; i < n; ++i) {
    const double v = x.at(0, i);
    low = std::min(low, v);
    high = std::max(high, v);
    symmetric = symmetric && std::fabs(v - x.at(0, n - 1 - i)) < 1e-5;
    periodic = periodic && (i == 0 || std::fabs(v - x.at(0, n - i)) < 1e-5);
  }
  return low > -1e-6 && high < 1 + 1e-5 && high > 0.5 && low < 0.2 * high && (symmetric || periodic);
}

// No number is negative, most are zero, and those of a line that are not stand together.
bool is_filter_bank(const Lines& x) {
  int64_t zeros = 0;
  for (int64_t line = 0; line < x.count; ++line) {
    int runs = 0;
    for (int64_t i = 0; i < x.length; ++i) {
      const double v = x.at(line, i);
      if (v < 0 || !(v < 1e9)) return false;
      zeros += v == 0;
      runs += v != 0 && (i == 0 || x.at(line, i - 1) == 0);
    }
    if (runs > 1) return false;
  }
  const int64_t numbers = x.count * x.length;
  return zeros * 10 > numbers * 6 && numbers - zeros >= 2 * x.count;  // an identity is not a filter
}

// Cosines and sines under a window. The window itself, which is the cosine of frequency zero, is nowhere smaller than
// any of them.
bool is_transform(const Lines& x) {
  double largest = 0, other = 0;
  for (int64_t i = 0; i < x.length; ++i) {
    largest = std::max(largest, x.at(0, i));
    for (int64_t line = 1; line < x.count; ++line) other = std::max(other, std::fabs(x.at(line, i)));
  }
  if (!(largest > 1e-6 && other > 1e-6)) return false;
  for (int64_t i = 0; i < x.length; ++i) {
    const double first = x.at(0, i);
    if (!(first > -1e-6)) return false;
    for (int64_t line = 1; line < x.count; ++line) {
      if (std::fabs(x.at(line, i)) > first * 1.001 + 1e-5) return false;
    }
  }
  return true;
}

// x[i-1] + x[i+1] = c x[i] along a line: what a sine satisfies for any frequency and phase. `least`: what is no more
// than rounding, as of the sine of whole turns.
bool is_sinusoid(const Lines& x, int64_t line, double least, bool& constant) {
  double product = 0, square = 0, largest = 0, low = x.at(line, 0), high = low;
  for (int64_t i = 0; i < x.length; ++i) {
    const double v = x.at(line, i);
    low = std::min(low, v);
    high = std::max(high, v);
    largest = std::max(largest, std::fabs(v));
    if (i == 0 || i + 1 == x.length) continue;
    product += v * (x.at(line, i - 1) + x.at(line, i + 1));
    square += v * v;
  }
  constant = !(high - low > least);
  if (constant || square == 0) return true;
  const double c = product / square;
  for (int64_t i = 1; i + 1 < x.length; ++i) {
    if (!(std::fabs(x.at(line, i - 1) + x.at(line, i + 1) - c * x.at(line, i)) < 1e-3 * largest)) return false;
  }
  return true;
}

bool are_sinusoids(const Lines& x) {
  int waves = 0;
  const int64_t stride = std::max<int64_t>(x.count / 16, 1);
  double largest = 0;
  for (int64_t line = 0; line < x.count; line += stride) {
    for (int64_t i = 0; i < x.length; ++i) largest = std::max(largest, std::fabs(x.at(line, i)));
  }
  for (int64_t line = 0; line < x.count; line += stride) {
    bool constant = false;
    if (!is_sinusoid(x, line, std::max(1e-6, 1e-4 * largest), constant)) return false;
    waves += !constant;
  }
  return waves >= 4;
}

// One number above the diagonal of a square, and another one on it and below, or the other way round.
bool is_triangle(const Lines& x) {
  if (x.count != x.length || x.count < 2) return false;
  const double low = x.at(1, 0), high = x.at(0, 1), diagonal = x.at(0, 0);
  if (low == high || (diagonal != low && diagonal != high)) return false;
  for (int64_t line = 0; line < x.count; ++line) {
    for (int64_t i = 0; i < x.length; ++i) {
      if (x.at(line, i) != (i < line ? low : i > line ? high : diagonal)) return false;
    }
  }
  return true;
}

// Each number is the one before it and a step, or that times a factor.
bool is_evenly_spaced(const Lines& x, int64_t line) {
  if (x.length < 4) return false;
  const double step = x.at(line, 1) - x.at(line, 0), factor = x.at(line, 1) / x.at(line, 0);
  double largest = 0;
  for (int64_t i = 0; i < x.length; ++i) largest = std::max(largest, std::fabs(x.at(line, i)));
  if (!(std::fabs(step) > 1e-6 * largest)) return false;
  bool steps = true, factors = std::isfinite(factor) && factor > 0;
  for (int64_t i = 1; i < x.length; ++i) {
    const double before = x.at(line, i - 1), now = x.at(line, i);
    steps = steps && std::fabs(now - before - step) < 1e-5 * largest;
    factors = factors && std::fabs(now - before * factor) < 1e-4 * std::fabs(now);
  }
  return steps || factors;
}

bool are_evenly_spaced(const Lines& x) {
  for (int64_t line = 0; line < x.count; ++line) {
    if (!is_evenly_spaced(x, line)) return false;
  }
  return x.count > 0;
}

// Zeros and ones, of both many. An identity, from which a learnt product may begin, has one of them a line.
bool is_of_bits(const Lines& x) {
  int64_t ones = 0, most = 0;
  for (int64_t line = 0; line < x.count; ++line) {
    int64_t here = 0;
    for (int64_t i = 0; i < x.length; ++i) {
      const double v = x.at(line, i);
      if (v != 0 && v != 1) return false;
      here += v == 1;
    }
    ones += here;
    most = std::max(most, here);
  }
  const int64_t numbers = x.count * x.length;
  return numbers >= min_line && most > 1 && ones * 8 >= numbers && (numbers - ones) * 8 >= numbers;
}

constexpr int64_t max_findings_of_a_kind = 24;

// Tensors that count as constants, each with a finding until there are too many of them.
struct LeftOut {
  int64_t count = 0, elements = 0;
  std::string example;
  void add(std::string_view name, const TensorType& type) {
    ++count;
    elements += type.elements();
    if (example.empty()) example = std::string(name);
  }
};

bool scales_or_shifts(std::string_view op) { return op == "Mul" || op == "Add" || op == "Sub" || op == "Div"; }

std::string trains_it(std::string_view name) { return cat("; --train-also '", name, "' trains it"); }

// Of a parameter that an optimising exporter has computed away: what of it is left cannot be trained in its place.
std::string folded_parameter(const OnnxModel& model, const ParameterRule& rule, std::string_view constant) {
  for (const auto& [name, from] : model.file().graph.folded_from) {
    if (name != constant) continue;
    for (std::string_view parameter : rule.said_parameters()) {
      if (from.find(cat("'", parameter, "'")) != std::string_view::npos) return std::string(parameter);
    }
  }
  return "";
}

// PyTorch's older exporter keeps one of the tensors that hold the same numbers, as those of a model do that has just
// been made, and copies it to the names of the others. Tied weights have one name, and no copy.
void add_merged(const OnnxModel& model, const ParameterRule& rule, std::vector<ModelFinding>& out) {
  if (!rule.keeps_names()) return;
  std::unordered_map<std::string_view, const Tensor*> stored;
  for (const Tensor& tensor : model.file().graph.initializers) stored.emplace(tensor.name, &tensor);
  int64_t count = 0;
  std::string_view first, kept;
  for (const Node& node : model.file().graph.nodes) {
    if (node.op_type != "Identity" || node.inputs.size() != 1 || node.outputs.size() != 1) continue;
    const auto from = stored.find(node.inputs[0]);
    if (from == stored.end() || rule.made_by_exporter(node.outputs[0]) || !rule.judge(*from->second).parameter)
      continue;
    if (count++ > 0) continue;
    first = node.outputs[0];
    kept = node.inputs[0];
  }
  if (count == 0) return;
  out.push_back({Level::warning, std::string(first),
                 cat("it is a copy of ", kept, count > 1 ? cat(", and ", count - 1, " more are copies of others") : "",
                     ": the exporter has merged tensors that held the same numbers, so they train as one. Export again "
                     "with torch.onnx.export(..., dynamo=True, optimize=False), or dynamo=False with "
                     "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False")});
}

// PyTorch's older exporter does not say what is a buffer, and one that stands last in its module looks like a
// parameter.
void add_fixed(const std::vector<std::string_view>& names, std::vector<ModelFinding>& out) {
  constexpr size_t most = 8;
  if (names.empty()) return;
  std::string options;
  for (size_t i = 0; i < std::min(most, names.size()); ++i) options += cat(" --freeze '", names[i], "'");
  const bool one = names.size() == 1;
  out.push_back({Level::warning, std::string(names.front()),
                 cat(one ? std::string("it is") : cat("it and ", names.size() - 1, " more are"),
                     " trained, but called as what a module keeps fixed (a kernel, a bank of filters, a codebook, "
                     "slopes), and the exporter does not say which tensors are buffers. If PyTorch does not train ",
                     one ? "it," : "them,", options, names.size() > most ? " and so on" : "",
                     one ? " leaves it alone" : " leave them alone")});
}

// Of a file whose exporter has computed away all that could be trained.
void add_nothing_left(const OnnxModel& model, const ParameterRule& rule, int64_t parameters, int64_t reals,
                      std::string_view first, std::vector<ModelFinding>& out) {
  const auto& said = rule.said_parameters();
  const bool none_stored = parameters == 0 && model.quantized().all().empty() && model.stores_no_weight_in_nodes();
  if (!none_stored || !rule.keeps_names() || (said.empty() && reals == 0)) return;
  out.push_back({Level::warning, std::string(said.empty() ? first : said.front()),
                 cat("nothing is left to train: ",
                     said.empty() ? cat(reals, " tensors of the file are constants that the exporter made")
                                  : cat("the module has ", said.size(),
                                        " parameters, this one the first, and the file "
                                        "stores none of them"),
                     ", so the exporter has folded parameters into constants. Export again with "
                     "torch.onnx.export(..., dynamo=True, optimize=False), or dynamo=False with "
                     "do_constant_folding=False; --train-also PATTERN trains constants as they are")});
}

// What is said once of all that are not named one by one.
void add_counts(const ParameterRule& rule, const LeftOut& named, const LeftOut& made, std::vector<ModelFinding>& out) {
  if (named.count > max_findings_of_a_kind) {
    out.push_back({Level::warning, "",
                   cat(named.count - max_findings_of_a_kind,
                       " more values are not trained for such reasons; epl inspect --json lists them all")});
  }
  if (made.count > 0) {
    out.push_back({Level::warning, made.example,
                   cat(made.count, " tensors (", grouped(made.elements),
                       " numbers), this one the first, scale or shift what the model computes, but their names are not "
                       "those of parameters, so they count as constants",
                       rule.keeps_names() ? ". If the exporter has computed them from parameters, export again with "
                                            "do_constant_folding=False (dynamo: optimize=False)"
                                          : "",
                       "; --train-also '", made.example, "', or a pattern for all of them, trains them")});
  }
}

}  // namespace

std::string table_kind(const epl::Tensor& value) {
  Shape shape;
  for (int64_t size : value.shape()) {
    if (size != 1) shape.push_back(size);
  }
  if (shape.empty() || shape.size() > 2 || value.elements() > max_elements_looked_at) return "";
  if (shape.size() == 1) {
    const Lines line(value, 1, shape[0], false);
    if (are_evenly_spaced(line)) return std::string(even_numbers);
    return shape[0] >= min_line && is_window(line) ? "a window" : "";
  }
  const Lines rows(value, shape[0], shape[1], false);
  if (is_triangle(rows)) return std::string(triangular_mask);
  if (are_evenly_spaced(rows)) return std::string(even_numbers);
  if (is_of_bits(rows)) return "zeros and ones";
  if (shape[0] < min_line / 2 || shape[1] < min_line / 2) return "";
  for (bool by_column : {false, true}) {
    const Lines lines(value, shape[0], shape[1], by_column);
    if (lines.length < min_line) continue;
    if (is_filter_bank(lines)) return "a bank of filters";
    if (is_transform(lines)) return "a transform";
    if (are_sinusoids(lines)) return "sinusoids";
  }
  return "";
}

void add_weight_findings(const OnnxModel& model, const ParameterRule& rule, std::vector<ModelFinding>& out) {
  std::unordered_set<std::string_view> scaling;
  for (const Node& node : model.file().graph.nodes) {
    if (scales_or_shifts(node.op_type)) scaling.insert(node.inputs.begin(), node.inputs.end());
  }
  add_merged(model, rule, out);
  LeftOut named, made;
  int64_t small = 0, looked_at = 0, parameters = 0, reals = 0;
  std::string_view first_real;
  std::vector<std::string_view> fixed;
  DType small_type = DType::f16;
  const auto warn = [&](std::string_view name, std::string text) {
    out.push_back({Level::warning, std::string(name), std::move(text)});
  };
  for (const Tensor& tensor : model.file().graph.initializers) {
    auto type = tensor_type(tensor);
    if (!type.ok() || !is_float(type->dtype)) continue;
    const std::string_view name = tensor.name;
    const ParameterVerdict verdict = rule.judge(tensor);
    parameters += verdict.parameter;
    if (!verdict.parameter && type->elements() > 1 && rule.made_by_exporter(name) && reals++ == 0) first_real = name;
    if (verdict.mask) {
      warn(name,
           cat("it is used as a weight, but holds NaN or numbers of 1e9 and more, so it is taken for a mask and not "
               "trained; mend the file, or train it by --train-also '",
               name, "'"));
    }
    if (!verdict.table.empty() && rule.is_learnable_position(name))
      warn(name, cat("it looks like a table, ", verdict.table, ", so it is taken for a constant", trains_it(name)));
    if (rule.is_said_parameter(name) && rule.is_statistic(name)) {
      warn(name,
           "it is a parameter and a running statistic at once, and not trained: the exporter has merged tensors that "
           "hold the same numbers; export again with torch.onnx.export(..., optimize=False)");
    }
    if (const std::string parameter = verdict.parameter ? "" : folded_parameter(model, rule, name);
        !parameter.empty()) {
      warn(name, cat("the exporter has computed this constant from the parameter ", parameter,
                     ", which therefore is not trained; export again with torch.onnx.export(..., optimize=False)"));
    } else if (verdict.left_out && rule.made_by_exporter(name)) {
      if (scaling.contains(name)) made.add(name, *type);
    } else if (verdict.left_out) {
      if (named.count++ < max_findings_of_a_kind)
        warn(name, cat(type->text(), " is not trained: ", verdict.reason, trains_it(name)));
    }
    if (!verdict.parameter || type->elements() <= 1) continue;
    if (rule.may_be_buffer(name)) fixed.push_back(name);
    if (type->dtype == DType::f16 || type->dtype == DType::bf16) {
      ++small;
      small_type = type->dtype;
    }
    looked_at += type->elements();
    if (type->elements() > max_elements_looked_at || looked_at > max_elements_of_all || rule.is_said_parameter(name))
      continue;
    auto value = tensor_value(tensor, model.stored());
    const std::string kind = value.ok() ? table_kind(*value) : "";
    if (kind.empty() || (kind == even_numbers && rule.scales_features(name))) continue;
    warn(name,
         cat("it looks like a table, ", kind, ", that training would change; --freeze '", name, "' leaves it alone"));
  }
  add_fixed(fixed, out);
  add_nothing_left(model, rule, parameters, reals, first_real, out);
  add_counts(rule, named, made, out);
  if (small > 0) {
    out.push_back({Level::note, "",
                   cat(small, " weights are ", dtype_name(small_type),
                       ": training keeps them and the optimizer's state in f32, computes in ", dtype_name(small_type),
                       ", and exports them as ", dtype_name(small_type))});
  }
}

}  // namespace epl::onnx
