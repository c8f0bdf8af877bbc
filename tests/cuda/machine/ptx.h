// PTX as it is written: the functions and variables of a module, with their instructions as words. What the words mean
// is decided in decode.cc.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace epl::cuda_machine::ptx {

// What a text has that the machine cannot carry out. It is never guessed.
struct Unknown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A declared name: a register, a parameter, or memory.
struct Variable {
  std::string name;
  std::string space;  // reg, param, shared, local, const, global
  std::string type;   // b8, u32, f64, pred, ...
  int64_t align = 0;
  int64_t count = 1;  // of elements; 0: `name[]`, as large as a launch says
  bool external = false;
  std::vector<uint8_t> data;  // initial bytes of constants and globals
  int64_t bytes() const;
};

int64_t bytes_of(const std::string& type);  // of "f32" and the like; throws

struct Place {
  uint16_t file = 0;
  uint32_t line = 0;  // 0: the text does not say
};

struct Instruction {
  std::string opcode;                  // "ld", "add", ...
  std::vector<std::string> modifiers;  // "global", "v4", "f32", ...
  std::vector<std::string> operands;   // "%r1", "[%rd1+4]", "{%f1,%f2}", "%r1|%p2", "(a,b)"
  std::string guard;                   // "%p1" where it is carried out under a condition
  bool guard_not = false;
  Place place;
  uint32_t ptx_line = 0;
  std::string text() const;
};

struct Function {
  std::string name;
  bool entry = false;
  bool defined = false;  // has a body
  std::vector<Variable> results, parameters;
  std::vector<Variable> variables;  // of its body, registers included
  std::vector<Instruction> code;
  std::map<std::string, size_t> labels;
  std::map<std::string, std::vector<std::string>> targets;  // of brx.idx, by the list's label
  int64_t threads[3] = {0, 0, 0};                           // .maxntid or .reqntid; 0: not said
};

struct Module {
  int version = 0;  // 90 is 9.0
  int target = 0;   // 90 is sm_90
  std::map<int, std::string> files;
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

Module parse(std::string_view text);

}  // namespace epl::cuda_machine::ptx
