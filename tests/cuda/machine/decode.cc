#include <algorithm>
#include <set>

#include "tests/cuda/machine/decoder.h"

namespace epl::cuda_machine {
namespace {

const std::set<std::string> kTypes = {"pred",   "b8",  "u8",  "s8",  "b16", "u16", "s16", "f16", "bf16", "f16x2",
                                      "bf16x2", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64",  "b128"};

const Reads& reads() {
  static const Reads all = [] {
    Reads made;
    add_moves(made), add_integers(made), add_carries(made), add_bits(made), add_floats(made), add_conversions(made);
    add_comparisons(made), add_memory(made), add_warp(made), add_flow(made);
    return made;
  }();
  return all;
}

uint32_t aligned(uint32_t at, int64_t align) {
  const auto by = static_cast<uint32_t>(align);
  return (at + by - 1) / by * by;
}

}  // namespace

bool Reading::take(const std::string& modifier) {
  const auto at = std::find(left_.begin(), left_.end(), modifier);
  if (at == left_.end()) return false;
  left_.erase(at);
  return true;
}

bool Reading::has(const std::string& modifier) const {
  return std::find(left_.begin(), left_.end(), modifier) != left_.end();
}

int Reading::which(const std::vector<std::string>& names) {
  for (size_t k = 0; k < names.size(); ++k) {
    if (take(names[k])) return static_cast<int>(k) + 1;
  }
  return 0;
}

std::string Reading::type() {
  const auto at = std::find_if(left_.begin(), left_.end(), [](const std::string& word) { return kTypes.count(word); });
  if (at == left_.end()) unknown("no type is given");
  std::string found = *at;
  left_.erase(at);
  return found;
}

void Reading::done() const {
  if (!left_.empty()) unknown("modifier ." + left_.front());
}

void Reading::unknown(const std::string& why) const {
  throw ptx::Unknown("PTX line " + std::to_string(text.ptx_line) + " (line " + std::to_string(text.place.line) +
                     " of the source): `" + text.text() + "` is not known to this machine: " + why);
}

int32_t Reading::operand(size_t k, const std::string& type) {
  if (k >= text.operands.size()) unknown("it has too few operands");
  const std::string& word = text.operands[k];
  return named(word.starts_with("!") ? word.substr(1) : word, type);
}

int32_t Reading::named(const std::string& word, const std::string& type) { return decoder_.value(*this, word, type); }

std::vector<std::string> Reading::parts(size_t k) const {
  std::string words = text.operands.at(k);
  if (words.starts_with("{") || words.starts_with("(")) words = words.substr(1, words.size() - 2);
  std::vector<std::string> found(1);
  for (const char c : words) {
    if (c == ',' || c == '|') {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

void Reading::address(size_t k, const std::string& space) {
  const std::string& words = text.operands.at(k);
  if (!words.starts_with("[") || words.find(',') != std::string::npos) unknown("its address");
  decoder_.address(*this, words.substr(1, words.size() - 2), space);
}

Decoder::Decoder(const ptx::Module& text, Module& module, Sites& sites) : text_(text), module_(module), sites_(sites) {}

int32_t Decoder::constant(uint64_t value) {
  const auto [at, is_new] = constants_.emplace(value, ~static_cast<int32_t>(constants_.size()));
  if (is_new) code_->constants.insert(code_->constants.end(), kLanes, value);
  return at->second;
}

bool Decoder::is_symbol(const std::string& words) const {
  return symbols_.count(words.substr(0, words.find('+'))) != 0;
}

int32_t Decoder::value(Reading& r, const std::string& word, const std::string& type) {
  const auto found = registers_.find(word);
  if (found != registers_.end()) return found->second;
  if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") || word.starts_with("0D")) {
    uint64_t value = std::stoull(word.substr(2), nullptr, 16);
    const bool is_double = word[1] == 'd' || word[1] == 'D';
    if (is_double != (type == "f64")) r.unknown("constant " + word + " of type ." + type);
    return constant(value);
  }
  char* end = nullptr;
  const bool minus = word.starts_with("-");
  uint64_t value = std::strtoull(word.c_str() + minus, &end, 0);
  if (word.empty() || end == word.c_str() + minus || (*end != '\0' && *end != 'U') || is_float(type))
    r.unknown("operand '" + word + "'");
  if (minus) value = 0 - value;
  if (type == "pred") return constant(value != 0 ? 0xffffffff : 0);
  const auto bytes = ptx::bytes_of(type);
  if (bytes < 8 && !type.starts_with("s")) value &= ~uint64_t{0} >> (64 - 8 * bytes);
  return constant(value);
}

void Decoder::symbol(Reading& r, const std::string& words) {
  const size_t plus = words.find('+');
  const auto found = symbols_.find(words.substr(0, plus));
  if (found == symbols_.end()) r.unknown("'" + words + "' is no register and no variable");
  r.instr.space = found->second.space;
  r.instr.a = constant(found->second.at);
  r.instr.offset = plus == std::string::npos ? 0 : std::stoll(words.substr(plus + 1), nullptr, 0);
}

// `%rd1`, `%rd1+4`, `%rd1+-4`, `name`, `name+4`.
void Decoder::address(Reading& r, const std::string& inside, const std::string& space) {
  const size_t plus = inside.find('+');
  const std::string base = inside.substr(0, plus);
  const auto found = registers_.find(base);
  if (found == registers_.end()) {
    symbol(r, inside);
    const bool is_const = space == "const" && r.instr.space == Space::global;
    const bool is_param = space == "param" && (r.instr.space == Space::parameter || r.instr.space == Space::frame);
    const bool same = (space == "shared" && r.instr.space == Space::shared) ||
                      (space == "global" && r.instr.space == Space::global) ||
                      (space == "local" && r.instr.space == Space::frame);
    if (!is_const && !is_param && !same) r.unknown("'" + base + "' is in another space");
    return;
  }
  r.instr.a = found->second;
  r.instr.offset = plus == std::string::npos ? 0 : std::stoll(inside.substr(plus + 1), nullptr, 0);
  r.instr.space = space.empty()       ? Space::generic
                  : space == "shared" ? Space::shared
                  : space == "local"  ? Space::local
                  : space == "param"  ? Space::parameter
                                      : Space::global;
}

uint32_t Decoder::label(Reading& r, const std::string& name) const {
  const auto found = function_->labels.find(name);
  if (found == function_->labels.end()) r.unknown("label '" + name + "'");
  return static_cast<uint32_t>(found->second);
}

std::vector<uint32_t> Decoder::table(Reading& r, const std::string& name) const {
  const auto found = function_->targets.find(name);
  if (found == function_->targets.end()) r.unknown("targets '" + name + "'");
  std::vector<uint32_t> places;
  for (const std::string& target : found->second) places.push_back(label(r, target));
  return places;
}

// call (result), name, (a, b) | call name, (a, b) | call name.
void Decoder::call(Reading& r) {
  size_t at = 0;
  std::vector<std::string> results;
  if (r.text.operands.at(0).starts_with("(")) results = r.parts(at++);
  const std::string& name = r.text.operands.at(at++);
  const auto callee = module_.codes.find(name);
  if (callee == module_.codes.end()) r.unknown("'" + name + "' is not in the module");
  const std::vector<std::string> arguments = at < r.operands() ? r.parts(at) : std::vector<std::string>{};
  const Code& code = *callee->second;
  if (arguments.size() != code.parameters.size() || results.size() != code.results.size())
    r.unknown("another number of arguments");
  const auto place = [&](const std::string& word) {
    const auto found = symbols_.find(word);
    if (found == symbols_.end() || found->second.space != Space::frame) r.unknown("argument '" + word + "'");
    return static_cast<uint32_t>(found->second.at);
  };
  for (size_t k = 0; k < arguments.size(); ++k)
    r.instr.passed.push_back({code.parameters[k].at, place(arguments[k]), code.parameters[k].bytes});
  for (size_t k = 0; k < results.size(); ++k)
    r.instr.given.push_back({place(results[k]), code.results[k].at, code.results[k].bytes});
  r.instr.callee = &code;
  if (std::find(code_->callees.begin(), code_->callees.end(), &code) == code_->callees.end())
    code_->callees.push_back(&code);
}

Decoder::Symbol Decoder::in_frame(const ptx::Variable& variable) {
  code_->frame = aligned(code_->frame, std::max<int64_t>(variable.align, ptx::bytes_of(variable.type)));
  const Symbol symbol = {Space::frame, code_->frame, variable.bytes()};
  code_->frame += static_cast<uint32_t>(variable.bytes());
  return symbol;
}

void Decoder::lay_out(const ptx::Function& function, Code& code) {
  code_ = &code;
  code.name = function.name;
  code.entry = function.entry;
  std::copy(std::begin(function.threads), std::end(function.threads), code.threads);
  const auto place = [](const Symbol& symbol) {
    return Parameter{static_cast<uint32_t>(symbol.at), static_cast<uint32_t>(symbol.bytes)};
  };
  if (function.entry) {
    uint32_t at = 0;
    for (const ptx::Variable& parameter : function.parameters) {
      at = aligned(at, std::max<int64_t>(parameter.align, ptx::bytes_of(parameter.type)));
      code.parameters.push_back({at, static_cast<uint32_t>(parameter.bytes())});
      at += static_cast<uint32_t>(parameter.bytes());
    }
    return;
  }
  for (const ptx::Variable& result : function.results) code.results.push_back(place(in_frame(result)));
  for (const ptx::Variable& parameter : function.parameters) code.parameters.push_back(place(in_frame(parameter)));
}

// A variable of shared memory, with a gap behind it so that what runs over its end is found.
void Decoder::place_shared(const std::vector<ptx::Variable>& variables) {
  for (const ptx::Variable& variable : variables) {
    if (variable.space != "shared" || variable.count == 0) continue;
    const uint32_t at = aligned(code_->shared_bytes, std::max<int64_t>(variable.align, 16));
    const auto bytes = static_cast<uint32_t>(variable.bytes());
    symbols_[variable.name] = {Space::shared, at, variable.bytes()};
    code_->shared.push_back({at, bytes});
    code_->shared_bytes = at + bytes + 16;
    code_->shared_wanted = aligned(code_->shared_wanted, variable.align) + bytes;
  }
}

void Decoder::place_variables(const ptx::Function& function) {
  symbols_.clear();
  registers_.clear();
  constants_.clear();
  for (const auto& [name, allocation] : module_.variables)
    symbols_[name] = {Space::global, allocation->address, allocation->bytes};
  place_shared(text_.variables);
  place_shared(function.variables);
  code_->shared_bytes = aligned(code_->shared_bytes, 128);
  for (const ptx::Variable& variable : text_.variables) {
    if (variable.space == "shared" && variable.count == 0) {
      symbols_[variable.name] = {Space::shared, code_->shared_bytes, 0};
      code_->dynamic_shared = true;
    }
  }
  for (size_t k = 0; k < function.parameters.size(); ++k)
    symbols_[function.parameters[k].name] = {function.entry ? Space::parameter : Space::frame, code_->parameters[k].at,
                                             code_->parameters[k].bytes};
  for (size_t k = 0; k < function.results.size(); ++k)
    symbols_[function.results[k].name] = {Space::frame, code_->results[k].at, code_->results[k].bytes};
  for (const ptx::Variable& variable : function.variables) {
    if (variable.space == "reg") {
      registers_[variable.name] = static_cast<int32_t>(code_->registers++);
    } else if (variable.space != "shared") {
      symbols_[variable.name] = in_frame(variable);
    }
  }
}

void Decoder::decode(const ptx::Function& function, Code& code) {
  function_ = &function;
  code_ = &code;
  place_variables(function);
  code.instructions.resize(function.code.size() + 1);
  for (size_t k = 0; k < function.code.size(); ++k) {
    const ptx::Instruction& text = function.code[k];
    Instr& instr = code.instructions[k];
    const auto file = text_.files.find(text.place.file);
    instr.where = sites_.add({file == text_.files.end() ? "PTX:" + std::to_string(text.ptx_line) : file->second,
                              text.place.line, text.text()});
    Reading reading(*this, text, instr);
    if (!text.guard.empty()) {
      instr.guard = value(reading, text.guard, "pred");
      instr.guard_not = text.guard_not;
    }
    const auto read = reads().find(text.opcode);
    if (read == reads().end()) reading.unknown("the instruction");
    read->second(reading);
  }
  code.instructions.back().flow = Flow::leave;
  code.instructions.back().where = sites_.add({function.name, 0, "end"});
}

std::unique_ptr<Module> load(std::string_view text, DeviceMemory& memory, int device, bool races, Sites& sites) {
  const ptx::Module read = ptx::parse(text);
  if (read.version > 90) throw ptx::Unknown("PTX of version " + std::to_string(read.version) + " is newer than 9.0");
  auto module = std::make_unique<Module>();
  module->target = read.target;
  for (const ptx::Variable& variable : read.variables) {
    if (variable.space == "shared") continue;
    Allocation& allocation = memory.allocate(std::max<int64_t>(variable.bytes(), 1), device, races);
    std::copy(variable.data.begin(), variable.data.end(), reinterpret_cast<uint8_t*>(allocation.region.data()));
    std::fill_n(allocation.region.known(), variable.bytes(), uint8_t{Region::kWritten});  // without data: zeros
    module->variables[variable.name] = &allocation;
  }
  Decoder decoder(read, *module, sites);
  for (const ptx::Function& function : read.functions) {
    if (!function.defined) continue;
    auto code = std::make_unique<Code>();
    decoder.lay_out(function, *code);
    module->codes[function.name] = std::move(code);
  }
  for (const ptx::Function& function : read.functions) {
    if (function.defined) decoder.decode(function, *module->codes.at(function.name));
  }
  return module;
}

}  // namespace epl::cuda_machine
