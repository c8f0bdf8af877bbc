#include "tools/sizes.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tools/text.h"
#include "tools/usage.h"
#include "tools/words.h"

namespace epl::tools {
namespace {

constexpr char shape_expected[] = "NAME=2,3,48 is expected, with ? for a size that is left open";

// "NAME=VALUE" cut at the last =, so that a name may hold one.
std::pair<std::string, std::string> name_and_value(const std::string& option, const std::string& text,
                                                   const std::string& expected) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw UsageError(option + " " + text + ": " + expected);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::vector<int64_t> read_shape(const std::string& name, const std::string& text) {
  std::vector<int64_t> out;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    const std::string one = text.substr(from, to - from);
    int64_t size = -1;
    if (one != "?" && (!read_integer(one, size) || size < 0))
      throw UsageError("--shape " + name + "=" + text + ": " + shape_expected);
    out.push_back(size);
    from = to + 1;
  }
  return out;
}

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string out;
  for (const int64_t size : sizes) out += (out.empty() ? "" : ",") + (size < 0 ? "?" : std::to_string(size));
  return out;
}

}  // namespace

std::string ModelInput::symbolic_text() const {
  if (!ranked) return std::string(epl_dtype_name(dtype)) + " of a shape that the file leaves open";
  std::string out = std::string(epl_dtype_name(dtype)) + "[";
  for (size_t d = 0; d < dims.size(); ++d) {
    out += d > 0 ? "," : "";
    out += dims[d] >= 0 ? std::to_string(dims[d]) : symbols[d].empty() ? "?" : symbols[d];
  }
  return out + "]";
}

std::vector<ModelInput> inputs_of(const Model& model) {
  std::vector<ModelInput> out;
  for (int64_t i = 0; i < epl_model_port_count(model.get(), EPL_PORT_INPUT); ++i) {
    ModelInput& made = out.emplace_back(ModelInput{port_of(epl_model_port, model.get(), EPL_PORT_INPUT, i), {}});
    for (size_t d = 0; d < made.dims.size(); ++d) {
      size_t length = 0;
      const char* text = epl_model_dim_symbol(model.get(), EPL_PORT_INPUT, i, static_cast<int32_t>(d), &length);
      made.symbols.emplace_back(text, length);
    }
  }
  // A shape of no dimensions may be no shape at all, which the description tells.
  if (std::none_of(out.begin(), out.end(), [](const ModelInput& one) { return one.dims.empty(); })) return out;
  const Json described = parse_json(text_of(epl_model_describe, model.get()));
  for (size_t i = 0; i < out.size(); ++i) out[i].ranked = described.at("inputs")[i].value("ranked", true);
  return out;
}

std::map<std::string, std::string> named(const std::string& option, const std::vector<std::string>& texts,
                                         const std::string& expected, bool lists) {
  std::map<std::string, std::string> out;
  for (const std::string& text : texts) {
    for (size_t from = 0; from <= text.size();) {
      const size_t to = lists ? std::min(text.find(',', from), text.size()) : text.size();
      const auto [name, value] = name_and_value(option, text.substr(from, to - from), expected);
      out[name] = value;
      from = to + 1;
    }
  }
  return out;
}

bool read_integer(const std::string& text, int64_t& out) {
  char* end = nullptr;
  errno = 0;
  out = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && errno == 0;
}

std::map<std::string, int64_t> batch_dims_of(const JobOptions& o) {
  std::map<std::string, int64_t> out;
  for (const auto& [name, value] : named("--batch-dim", o.batch_dims, "NAME=D is expected", true)) {
    if (!read_integer(value, out[name]) || out[name] < -1 || out[name] >= EPL_MAX_NDIM) {
      throw UsageError("--batch-dim " + name + "=" + value +
                       ": NAME=D is expected, a dimension counted from 0, or -1 where none counts samples");
    }
  }
  return out;
}

int64_t batch_dim(const Port& port, const std::map<std::string, int64_t>& dims) {
  const auto it = dims.find(port.name);
  const int64_t dim = it == dims.end() ? 0 : it->second;
  return dim < static_cast<int64_t>(port.dims.size()) ? dim : -1;
}

SaidSizes::SaidSizes(const Model& model, const JobOptions& o) : inputs_(inputs_of(model)) {
  for (const auto& [name, value] : named("--symbol", o.symbols, "NAME=SIZE is expected")) {
    if (!read_integer(value, symbols_[name]) || symbols_[name] < 0)
      throw UsageError("--symbol " + name + "=" + value + ": NAME=SIZE is expected");
  }
  for (const std::string& text : o.shapes) {
    const auto [name, value] = name_and_value("--shape", text, shape_expected);
    const auto input = std::find_if(inputs_.begin(), inputs_.end(),
                                    [&, &name = name](const ModelInput& one) { return one.name == name; });
    if (input == inputs_.end()) {
      std::vector<std::string> names;
      for (const ModelInput& one : inputs_) names.push_back(one.name);
      throw ApiError(EPL_ERROR_NOT_FOUND, "--shape " + text + ": the model has no input " + name + choices(name, names),
                     "");
    }
    add(*input, value, o);
  }
}

void SaidSizes::add(ModelInput& input, const std::string& text, const JobOptions& o) {
  const std::vector<int64_t> sizes = read_shape(input.name, text);
  const std::string said = "--shape " + input.name + "=" + text;
  const auto refuse = [&](const std::string& why) {
    throw ApiError(EPL_ERROR_INVALID_ARGUMENT, said + ": " + why, "");
  };
  if (shapes_.contains(input.name)) refuse("the input has a --shape already");
  if (!input.ranked) {
    input.ranked = true;
    input.dims.assign(sizes.size(), -1);
    input.symbols.assign(sizes.size(), "");
  }
  if (sizes.size() != input.dims.size()) {
    refuse("input " + input.name + " has " + std::to_string(input.dims.size()) +
           (input.dims.size() == 1 ? " dimension, " : " dimensions, ") + input.symbolic_text());
  }
  const int64_t samples_in = batch_dim(input, batch_dims_of(o));
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0) continue;
    const bool samples = static_cast<int64_t>(d) == samples_in;
    if (samples && o.batch > 0 && o.batch != sizes[d]) refuse("--batch says " + std::to_string(o.batch) + " samples");
    if (input.dims[d] >= 0) {
      if (input.dims[d] == sizes[d] || (samples && o.free_batch)) continue;
      refuse("dimension " + std::to_string(d) + " of input " + input.name + " is fixed at " +
             std::to_string(input.dims[d]) + " in the file" +
             (samples ? "; --free-batch makes it free where the graph allows it" : ""));
    }
    if (input.symbols[d].empty()) continue;
    const auto [known, first] = symbols_.emplace(input.symbols[d], sizes[d]);
    if (!first && known->second != sizes[d])
      refuse("dimension " + input.symbols[d] + " is " + std::to_string(known->second) + " by another option");
  }
  shapes_[input.name] = sizes;
}

int64_t SaidSizes::of(const ModelInput& input, size_t dim) const {
  const auto shape = shapes_.find(input.name);
  if (shape != shapes_.end() && shape->second[dim] >= 0) return shape->second[dim];
  const auto symbol = input.dims[dim] < 0 ? symbols_.find(input.symbols[dim]) : symbols_.end();
  return symbol != symbols_.end() ? symbol->second : -1;
}

int64_t SaidSizes::of(const std::string& input, size_t dim) const {
  for (const ModelInput& one : inputs_) {
    if (one.name == input && dim < one.dims.size()) return of(one, dim);
  }
  return -1;
}

void SaidSizes::check_data(const std::string& input, const Port& field) const {
  const auto shape = shapes_.find(input);
  if (shape == shapes_.end()) return;
  for (size_t d = 0; d < shape->second.size() && d < field.dims.size(); ++d) {
    if (shape->second[d] < 0 || shape->second[d] == field.dims[d]) continue;
    throw ApiError(EPL_ERROR_INVALID_ARGUMENT,
                   "--shape " + input + "=" + sizes_text(shape->second) + ": the data gives " + field.text() +
                       " for that input; leave --shape out, and the data says the sizes",
                   "");
  }
}

bool says_sizes(const JobOptions& o) {
  return !o.shapes.empty() || !o.symbols.empty() || !o.values.empty() || o.batch > 0 || o.context > 0;
}

void refuse_open(const std::vector<ModelInput>& inputs, const std::map<std::string, int64_t>& symbols,
                 const std::vector<std::vector<int64_t>>& sizes) {
  constexpr int64_t example = 64;
  std::vector<std::string> open;
  std::string options;
  std::map<std::string, int64_t> shown = symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].ranked) {
      open.push_back("the number of dimensions of input " + inputs[i].name);
      options += " --shape " + shell_word(inputs[i].name + "=" + sizes_text(sizes[i]));
      continue;
    }
    std::vector<int64_t> whole = sizes[i];
    std::vector<std::string> names;
    for (size_t d = 0; d < whole.size(); ++d) {
      if (whole[d] >= 0) continue;
      const std::string& symbol = inputs[i].symbols[d];
      whole[d] = symbol.empty() ? example : shown.emplace(symbol, example).first->second;
      names.push_back(symbol.empty() ? "dimension " + std::to_string(d) : symbol);
    }
    if (names.empty()) continue;
    open.push_back(listed(names) + " of input " + inputs[i].name + ", which is " + inputs[i].symbolic_text());
    options += " --shape " + shell_word(inputs[i].name + "=" + sizes_text(whole));
  }
  throw ApiError(EPL_ERROR_INVALID_ARGUMENT,
                 "the model leaves sizes open: " + joined(open, "; ") + ". Give them as in" + options, "");
}

}  // namespace epl::tools
