// Reads PTX: words first, then declarations and instructions. It knows every directive that NVRTC prints.
#include "tests/cuda/machine/ptx.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

namespace epl::cuda_machine::ptx {

int64_t bytes_of(const std::string& type) {
  static const std::map<std::string, int64_t> sizes = {
      {"pred", 1}, {"b8", 1},   {"u8", 1},    {"s8", 1},     {"b16", 2}, {"u16", 2},  {"s16", 2},
      {"f16", 2},  {"bf16", 2}, {"f16x2", 4}, {"bf16x2", 4}, {"b32", 4}, {"u32", 4},  {"s32", 4},
      {"f32", 4},  {"b64", 8},  {"u64", 8},   {"s64", 8},    {"f64", 8}, {"b128", 16}};
  const auto size = sizes.find(type);
  if (size == sizes.end()) throw Unknown("type ." + type);
  return size->second;
}

int64_t Variable::bytes() const { return bytes_of(type) * count; }

std::string Instruction::text() const {
  std::string words = guard.empty() ? "" : std::string("@") + (guard_not ? "!" : "") + guard + " ";
  words += opcode;
  for (const std::string& modifier : modifiers) words += "." + modifier;
  for (size_t k = 0; k < operands.size(); ++k) words += (k == 0 ? " " : ", ") + operands[k];
  return words;
}

namespace {

struct Token {
  std::string text;
  uint32_t line = 0;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || strchr("_$%.", c) != nullptr; }

// Words hold their dots and percent signs (`ld.global.f32`, `%tid.x`); all else is one character each.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  uint32_t line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) || c == '\0') {
      ++at;
    } else if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at, 2) == "/*") {
      const size_t end = std::min(text.find("*/", at), text.size() - 2) + 2;
      line += static_cast<uint32_t>(std::count(text.begin() + at, text.begin() + end, '\n'));
      at = end;
    } else {
      size_t end = at + 1;
      if (c == '"') {
        end = std::min(text.find('"', end), text.size() - 1) + 1;
      } else if (is_word(c)) {
        while (end < text.size() && is_word(text[end])) ++end;
      }
      tokens.push_back({std::string(text.substr(at, end - at)), line});
      at = end;
    }
  }
  tokens.push_back({"", line});
  return tokens;
}

std::vector<std::string> split(const std::string& word, char by) {
  std::vector<std::string> parts(1);
  for (const char c : word) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens_of(text)) {}

  Module parse() {
    while (!peek().empty()) top();
    return std::move(module_);
  }

 private:
  const std::string& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)].text; }
  std::string next() {
    std::string text = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return text;
  }
  bool take(const std::string& word) {
    if (peek() != word) return false;
    next();
    return true;
  }
  void want(const std::string& word) {
    if (!take(word)) fail("'" + word + "' was expected before '" + peek() + "'");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Unknown("PTX line " + std::to_string(tokens_[at_].line) + ": " + why);
  }
  int64_t number() {
    const bool minus = take("-");
    const std::string word = next();
    char* end = nullptr;
    const auto value = static_cast<int64_t>(std::strtoull(word.c_str(), &end, 0));
    if (word.empty() || (*end != '\0' && strcmp(end, "U") != 0)) fail("'" + word + "' is no number");
    return minus ? -value : value;
  }

  void top() {
    const std::string word = peek();
    if (word == ".version") {
      next();
      const std::vector<std::string> parts = split(next(), '.');
      module_.version = std::stoi(parts.at(0)) * 10 + std::stoi(parts.at(1));
    } else if (word == ".target") {
      next();
      const std::string target = next();
      if (!target.starts_with("sm_")) fail("target '" + target + "'");
      module_.target = std::atoi(target.c_str() + 3);
      while (take(",")) next();
    } else if (word == ".address_size") {
      next();
      if (number() != 64) fail("addresses are not of 64 bits");
    } else if (word == ".file") {
      file();
    } else if (word == ".section") {
      while (next() != "}") {
        if (peek().empty()) fail("a section without its end");
      }
    } else {
      declaration();
    }
  }

  void file() {
    next();
    const auto index = static_cast<int>(number());
    const std::string name = next();
    module_.files[index] = name.substr(1, name.size() - 2);
    while (take(",")) number();
  }

  // A variable, or a function with what stands before it.
  void declaration() {
    bool external = false;
    while (peek() == ".visible" || peek() == ".extern" || peek() == ".weak" || peek() == ".common") {
      external = next() == ".extern" || external;
    }
    if (peek() == ".entry" || peek() == ".func") {
      function();
    } else if (peek() == ".global" || peek() == ".const" || peek() == ".shared") {
      for (Variable& variable : variables()) {
        variable.external = external;
        module_.variables.push_back(std::move(variable));
      }
      want(";");
    } else {
      fail("'" + peek() + "' is no directive that is known");
    }
  }

  // `.space .align N .type name[count] = {...}, name...` without its end.
  std::vector<Variable> variables() {
    Variable model;
    model.space = next().substr(1);
    while (peek().starts_with(".")) {
      const std::string word = next().substr(1);
      if (word == "align") {
        model.align = number();
      } else if (word == "v2" || word == "v4") {
        model.count = word[1] - '0';
      } else if (word == "ptr") {  // of a parameter: says what it points to
        if (peek() == ".global" || peek() == ".shared" || peek() == ".local" || peek() == ".const") next();
      } else if (word != "attribute") {
        bytes_of(word);
        model.type = word;
      } else {
        fail("a variable with .attribute");
      }
    }
    std::vector<Variable> found;
    do {
      Variable variable = model;
      variable.name = next();
      if (variable.align == 0) variable.align = bytes_of(variable.type);
      if (peek() == "<") {  // %r<9>: nine of them
        next();
        const int64_t many = number();
        want(">");
        for (int64_t k = 0; k < many; ++k) {
          found.push_back(variable);
          found.back().name += std::to_string(k);
        }
        continue;
      }
      while (take("[")) {
        variable.count *= peek() == "]" ? 0 : number();
        want("]");
      }
      if (take("=")) initial(variable);
      found.push_back(std::move(variable));
    } while (peek(1) != ".param" && take(","));  // parameters have their space each
    return found;
  }

  void initial(Variable& variable) {
    const auto size = static_cast<size_t>(bytes_of(variable.type));
    int depth = 0;
    do {
      if (take("{")) {
        ++depth;
      } else if (take("}")) {
        --depth;
      } else if (!take(",")) {
        if (!std::isdigit(static_cast<unsigned char>(peek()[0])) && peek() != "-")
          fail("'" + variable.name + "' begins with the address of '" + peek() + "'");
        const uint64_t value = peek().starts_with("0f") || peek().starts_with("0F") ||  //
                                       peek().starts_with("0d") || peek().starts_with("0D")
                                   ? std::strtoull(next().c_str() + 2, nullptr, 16)
                                   : static_cast<uint64_t>(number());
        const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
        variable.data.insert(variable.data.end(), bytes, bytes + size);
      }
    } while (depth > 0);
    variable.data.resize(static_cast<size_t>(variable.bytes()));
  }

  void function() {
    Function function;
    function.entry = next() == ".entry";
    if (peek() == "(") function.results = parameters();
    function.name = next();
    if (peek() == "(") function.parameters = parameters();
    while (peek().starts_with(".")) {
      const std::string word = next();
      if (word == ".maxntid" || word == ".reqntid") {
        for (int64_t& threads : function.threads) threads = 1;
        int axis = 0;
        do {
          function.threads[axis++] = number();
        } while (take(",") && axis < 3);
      } else if (word == ".minnctapersm" || word == ".maxnreg") {
        number();
      } else if (word == ".pragma") {
        next();
        want(";");
      } else if (word != ".noreturn") {
        fail("'" + word + "' of a function");
      }
    }
    function.defined = peek() == "{";
    if (function.defined) {
      body(function);
    } else {
      want(";");
    }
    const auto known = std::find_if(module_.functions.begin(), module_.functions.end(),
                                    [&](const Function& other) { return other.name == function.name; });
    if (known == module_.functions.end()) {
      module_.functions.push_back(std::move(function));
    } else if (!known->defined) {
      *known = std::move(function);
    }
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> found;
    want("(");
    while (!take(")")) {
      for (Variable& variable : variables()) found.push_back(std::move(variable));
      take(",");
    }
    return found;
  }

  // Names of an inner block hide those outside it: they are written with the block's number.
  void body(Function& function) {
    std::vector<std::map<std::string, std::string>> scopes;
    int blocks = 0;
    Place place;
    do {
      const std::string word = peek();
      if (take("{")) {
        scopes.emplace_back();
        ++blocks;
      } else if (take("}")) {
        scopes.pop_back();
      } else if (word == ".loc") {
        const Place found = location();
        if (found.line != 0) place = found;  // 0: of no line; the one before is the best there is
      } else if (word == ".pragma") {
        next(), next();
        want(";");
      } else if (word == ".reg" || word == ".local" || word == ".shared" || word == ".param") {
        for (Variable& variable : variables()) {
          if (scopes.size() > 1) {
            const std::string plain = variable.name;
            variable.name += "@" + std::to_string(blocks);
            scopes.back()[plain] = variable.name;
          }
          function.variables.push_back(std::move(variable));
        }
        want(";");
      } else if (peek(1) == ":") {
        next(), next();
        label(function, word);
      } else if (word.empty()) {
        fail("the text ends within '" + function.name + "'");
      } else {
        instruction(function, place, scopes);
      }
    } while (!scopes.empty());
  }

  Place location() {
    next();
    Place place;
    place.file = static_cast<uint16_t>(number());
    place.line = static_cast<uint32_t>(number());
    number();
    // Of inlined code: the line inside the function is what one looks for.
    if (take(",")) {
      if (next() != "function_name") fail("'.loc' with more than a place");
      next();
      if (take("+")) number();
      want(",");
      want("inlined_at");
      for (int k = 0; k < 3; ++k) number();
    }
    return place;
  }

  void label(Function& function, const std::string& name) {
    if (peek() == ".branchtargets") {
      next();
      do {
        function.targets[name].push_back(next());
      } while (take(","));
      want(";");
    } else if (peek().starts_with(".")) {
      // .loc and the like follow a label; a prototype does so too, and is not known.
      if (peek() == ".callprototype" || peek() == ".calltargets") fail("'" + peek() + "': a call by address");
      function.labels[name] = function.code.size();
    } else {
      function.labels[name] = function.code.size();
    }
  }

  void instruction(Function& function, const Place& place,
                   const std::vector<std::map<std::string, std::string>>& scopes) {
    Instruction found;
    found.place = place;
    found.ptx_line = tokens_[at_].line;
    const auto renamed = [&](const std::string& name) {
      for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
        const auto other = scope->find(name);
        if (other != scope->end()) return other->second;
      }
      return name;
    };
    if (take("@")) {
      found.guard_not = take("!");
      found.guard = renamed(next());
    }
    std::vector<std::string> words = split(next(), '.');
    found.opcode = words.front();
    found.modifiers.assign(words.begin() + 1, words.end());
    while (take(":")) {  // .L2::128B and the like
      want(":");
      found.modifiers.back() += "::" + next();
    }
    int depth = 0;
    bool begun = false;
    std::string operand;
    for (std::string word = next(); word != ";"; word = next()) {
      if (word.empty()) fail("an instruction without its ';'");
      depth += (word == "[" || word == "{" || word == "(") - (word == "]" || word == "}" || word == ")");
      if (word == "," && depth == 0) {
        found.operands.push_back(operand);
        operand.clear();
      } else {
        operand += renamed(word);
      }
      begun = true;
    }
    if (begun) found.operands.push_back(operand);
    function.code.push_back(std::move(found));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Module module_;
};

}  // namespace

Module parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace epl::cuda_machine::ptx
