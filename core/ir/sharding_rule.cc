#include "core/ir/sharding_rule.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/base/shown.h"

namespace epl {
namespace {

// One dimension of a short form: letters of its factors (major first), `...`, or `1`.
struct DimText {
  std::vector<char> letters;
  bool ellipsis = false;
};

bool is_space(char c) { return c == ' ' || c == '\n'; }

Result<std::vector<std::vector<DimText>>> parse_operands(std::string_view text) {
  std::vector<std::vector<DimText>> operands(1);
  for (size_t i = 0; i < text.size();) {
    char c = text[i];
    if (is_space(c)) {
      ++i;
    } else if (c == ',') {
      operands.emplace_back();
      ++i;
    } else if (text.substr(i).starts_with("...")) {
      operands.back().push_back({.ellipsis = true});
      i += 3;
    } else if (c == '1') {
      operands.back().push_back({});
      ++i;
    } else if (c == '(') {
      size_t close = text.find(')', i);
      if (close == std::string_view::npos) return invalid("sharding rule without )");
      DimText dim;
      for (char letter : text.substr(i + 1, close - i - 1)) {
        if (!is_space(letter)) dim.letters.push_back(letter);
      }
      operands.back().push_back(std::move(dim));
      i = close + 1;
    } else if (c >= 'a' && c <= 'z') {
      operands.back().push_back({.letters = {c}});
      ++i;
    } else {
      return invalid("sharding rule with '", c, "'");
    }
  }
  return operands;
}

class RuleBuilder {
 public:
  explicit RuleBuilder(ShardingRule& rule) : rule_(rule) {}

  // Sizes of single-letter dimensions first; then products with one unknown are solved.
  Status learn(const std::vector<DimText>& dims, const TensorType& type, size_t ellipsis) {
    size_t at = 0;
    for (const DimText& dim : dims) {
      if (dim.ellipsis) {
        at += ellipsis;
        continue;
      }
      int64_t size = type.shape[at++];
      std::vector<char> unknown;
      for (char letter : dim.letters) {
        auto known = sizes_.find(letter);
        if (known == sizes_.end()) {
          unknown.push_back(letter);
        } else if (known->second != 0 && size % known->second == 0) {
          size /= known->second;
        }
      }
      if (unknown.size() == 1) sizes_[unknown[0]] = size;
    }
    return {};
  }

  ShardingRule::Operand operand(const std::vector<DimText>& dims, const TensorType& type, size_t ellipsis) {
    ShardingRule::Operand out;
    for (const DimText& dim : dims) {
      if (dim.ellipsis) {
        for (size_t i = 0; i < ellipsis; ++i) {
          int64_t size = type.shape[out.size()];
          // Counted from the right, so that operands of fewer leading dimensions broadcast.
          out.push_back(size == 1 ? ShardingRule::Dim{} : ShardingRule::Dim{leading(ellipsis - i, size)});
        }
        continue;
      }
      ShardingRule::Dim factors;
      int64_t size = type.shape[out.size()];
      for (char letter : dim.letters) {
        if (size != 1 || dim.letters.size() > 1) factors.push_back(letter_factor(letter));
      }
      out.push_back(std::move(factors));
    }
    return out;
  }

  int letter_factor(char letter) {
    auto [it, inserted] = letters_.emplace(letter, 0);
    if (inserted) it->second = rule_.add_factor(sizes_.contains(letter) ? sizes_[letter] : 1);
    return it->second;
  }

 private:
  int leading(size_t from_right, int64_t size) {
    auto [it, inserted] = leading_.emplace(from_right, 0);
    if (inserted) it->second = rule_.add_factor(size);
    return it->second;
  }

  ShardingRule& rule_;
  std::map<char, int64_t> sizes_;
  std::map<char, int> letters_;
  std::map<size_t, int> leading_;
};

}  // namespace

int ShardingRule::add_factor(int64_t size, bool unshardable) {
  factors.push_back({.size = size, .unshardable = unshardable});
  return static_cast<int>(factors.size()) - 1;
}

namespace {

struct OperandText {
  const std::vector<DimText>* dims;
  const TensorType* type;
  size_t ellipsis;
};

// Of each operand or result its dimensions as the text has them, beside its type.
Result<std::vector<OperandText>> texts_of(const std::vector<std::vector<DimText>>& texts,
                                          const std::vector<TensorType>& types, std::string_view rule) {
  if (texts.size() < types.size()) return invalid("sharding rule ", shown(rule, 200), " has too few operands");
  static const std::vector<DimText> absent;
  std::vector<OperandText> operands;
  for (size_t i = 0; i < types.size(); ++i) {
    const size_t ndim = types[i].shape.size();
    if (ndim == 0) {  // absent, or a scalar: nothing to cut
      operands.push_back({&absent, &types[i], 0});
      continue;
    }
    const auto ellipses = static_cast<size_t>(std::ranges::count_if(texts[i], &DimText::ellipsis));
    const size_t fixed = texts[i].size() - ellipses;
    if (ndim < fixed || (ellipses == 0 && ndim != fixed))
      return invalid("sharding rule ", shown(rule, 200), " does not fit operand ", i, " of type ", types[i].text());
    operands.push_back({&texts[i], &types[i], ndim - fixed});
  }
  return operands;
}

// "unshardable a b, max c"
Status read_notes(std::string_view notes, std::string_view full, RuleBuilder& builder, ShardingRule& rule) {
  using Factor = ShardingRule::Factor;
  struct Note {
    std::string_view word;
    void (*set)(Factor&);
  };
  static constexpr Note known[] = {{"unshardable", [](Factor& f) { f.unshardable = true; }},
                                   {"max", [](Factor& f) { f.reduce = ShardingRule::Reduce::max; }},
                                   {"min", [](Factor& f) { f.reduce = ShardingRule::Reduce::min; }}};
  const Note* current = nullptr;
  while (!notes.empty()) {
    if (is_space(notes[0]) || notes[0] == ',' || notes[0] == ';' || notes[0] == '|') {
      notes.remove_prefix(1);
      continue;
    }
    const auto* const found = std::ranges::find_if(known, [&](const Note& n) { return notes.starts_with(n.word); });
    if (found != std::end(known)) {
      current = found;
      notes.remove_prefix(found->word.size());
      continue;
    }
    if (!current) return invalid("sharding rule ", shown(full, 200), ": unknown note");
    current->set(rule.factors[builder.letter_factor(notes[0])]);
    notes.remove_prefix(1);
  }
  return {};
}

}  // namespace

Result<ShardingRule> parse_sharding_rule(std::string_view text, const std::vector<TensorType>& inputs,
                                         const std::vector<TensorType>& outputs) {
  const std::string_view full = text;
  std::string_view notes;
  if (const size_t bar = text.find('|'); bar != std::string_view::npos) {
    notes = text.substr(bar + 1);
    text = text.substr(0, bar);
  }
  const size_t arrow = text.find("->");
  if (arrow == std::string_view::npos) return invalid("sharding rule without ->: ", full);
  EPL_ASSIGN(const auto in, parse_operands(text.substr(0, arrow)));
  EPL_ASSIGN(const auto out, parse_operands(text.substr(arrow + 2)));
  EPL_ASSIGN(const std::vector<OperandText> taken, texts_of(in, inputs, full));
  EPL_ASSIGN(const std::vector<OperandText> given, texts_of(out, outputs, full));
  ShardingRule rule;
  RuleBuilder builder(rule);
  for (int round = 0; round < 2; ++round) {  // the second solves products whose parts came later
    for (const std::vector<OperandText>* operands : {&taken, &given}) {
      for (const OperandText& operand : *operands)
        EPL_TRY(builder.learn(*operand.dims, *operand.type, operand.ellipsis));
    }
  }
  for (const OperandText& operand : taken)
    rule.inputs.push_back(builder.operand(*operand.dims, *operand.type, operand.ellipsis));
  for (const OperandText& operand : given)
    rule.outputs.push_back(builder.operand(*operand.dims, *operand.type, operand.ellipsis));
  EPL_TRY(read_notes(notes, full, builder, rule));
  return rule;
}

ShardingRule elementwise_rule(const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  ShardingRule rule;
  const Shape& shape = outputs[0].shape;
  for (int64_t size : shape) rule.add_factor(size);
  auto operand = [&](const TensorType& type) {
    ShardingRule::Operand dims;
    size_t extra = shape.size() - type.shape.size();
    for (size_t i = 0; i < type.shape.size(); ++i) {
      bool follows = type.shape[i] == shape[extra + i] && type.shape[i] != 1;
      dims.push_back(follows ? ShardingRule::Dim{static_cast<int>(extra + i)} : ShardingRule::Dim{});
    }
    return dims;
  };
  for (const TensorType& type : inputs) rule.inputs.push_back(operand(type));
  for (const TensorType& type : outputs) rule.outputs.push_back(operand(type));
  return rule;
}

ShardingRule reshape_rule(const TensorType& input, const TensorType& output) {
  ShardingRule rule;
  rule.inputs.resize(1);
  rule.outputs.resize(1);
  rule.inputs[0].resize(input.shape.size());
  rule.outputs[0].resize(output.shape.size());
  // Walk both shapes from the left; the part that both have left of the current dimensions is a common factor. Sizes
  // without a common divisor end the correspondence inside this group: what is left of it is unshardable.
  size_t i = 0, o = 0;
  int64_t left_i = 0, left_o = 0;
  auto next = [](const Shape& shape, size_t& at, int64_t& left) {
    while (left <= 1 && at < shape.size()) {
      left = shape[at];
      if (left <= 1) ++at;
    }
    return at < shape.size();
  };
  if (input.elements() == 0) return rule;
  while (next(input.shape, i, left_i) && next(output.shape, o, left_o)) {
    int64_t small = std::min(left_i, left_o), large = std::max(left_i, left_o);
    if (large % small == 0) {
      int factor = rule.add_factor(small);
      rule.inputs[0][i].push_back(factor);
      rule.outputs[0][o].push_back(factor);
      if ((left_i /= small) == 1) ++i, left_i = 0;
      if ((left_o /= small) == 1) ++o, left_o = 0;
      continue;
    }
    // 6 -> 4 x 3 and the like: gather dimensions until the products meet, as one unshardable factor on each.
    int64_t product_i = left_i, product_o = left_o;
    rule.inputs[0][i].push_back(rule.add_factor(left_i, true));
    rule.outputs[0][o].push_back(rule.add_factor(left_o, true));
    while (product_i != product_o) {
      if (product_i < product_o) {
        ++i;
        product_i *= input.shape[i];
        rule.inputs[0][i].push_back(rule.add_factor(input.shape[i], true));
      } else {
        ++o;
        product_o *= output.shape[o];
        rule.outputs[0][o].push_back(rule.add_factor(output.shape[o], true));
      }
    }
    ++i, ++o;
    left_i = left_o = 0;
  }
  return rule;
}

}  // namespace epl
