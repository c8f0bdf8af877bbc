// Makes the functions of a module ready to run: gives registers, variables and parameters their places.
#pragma once

#include "tests/cuda/machine/reading.h"

namespace epl::cuda_machine {

class Decoder {
 public:
  Decoder(const ptx::Module& text, Module& module, Sites& sites);
  void decode(const ptx::Function& function, Code& code);
  // The places of parameters and results, which callers need before the body is decoded.
  void lay_out(const ptx::Function& function, Code& code);

  bool is_register(const std::string& name) const { return registers_.count(name) != 0; }
  bool is_symbol(const std::string& words) const;
  int32_t value(Reading& r, const std::string& word, const std::string& type);
  // Instr's space, a and offset for `name` or `name+4`.
  void symbol(Reading& r, const std::string& words);
  uint32_t label(Reading& r, const std::string& name) const;
  std::vector<uint32_t> table(Reading& r, const std::string& name) const;
  void call(Reading& r);
  void address(Reading& r, const std::string& inside, const std::string& space);

 private:
  struct Symbol {
    Space space = Space::global;
    uint64_t at = 0;
    int64_t bytes = 0;
  };
  int32_t constant(uint64_t value);
  void place_variables(const ptx::Function& function);
  void place_shared(const std::vector<ptx::Variable>& variables);
  Symbol in_frame(const ptx::Variable& variable);

  const ptx::Module& text_;
  Module& module_;
  Sites& sites_;
  const ptx::Function* function_ = nullptr;
  Code* code_ = nullptr;
  std::map<std::string, int32_t> registers_;
  std::map<std::string, Symbol> symbols_;
  std::map<uint64_t, int32_t> constants_;
};

}  // namespace epl::cuda_machine
