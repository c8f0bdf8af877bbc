// The words that text forms share: names, attributes, a reader of lines.
#pragma once

#include <string>
#include <string_view>

#include "core/base/attributes.h"

namespace epl {

// A name as it stands in a text form: bare where its characters allow, else quoted. "_" stands for an absent operand.
std::string name_text(std::string_view name);
// " {axis=1, keep=true}", or empty.
std::string attributes_text(const Attributes& attributes);

// Reads a text form line by line; errors name the line.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}
  // The next line without leading space, skipping empty ones; false at the end.
  bool next_line();
  std::string_view& line() { return line_; }
  int line_number() const { return number_; }
  bool take(std::string_view token);  // skips spaces, removes the token if it is next
  bool name(std::string& out);
  bool integer(int64_t& out);
  bool type(TensorType& out);
  bool at_end();                    // of the line
  Result<Attributes> attributes();  // "{...}" if there is one
  Status fail(std::string_view what) const;

 private:
  void skip();
  std::string_view rest_, line_, full_line_;
  int number_ = 0;
};

}  // namespace epl
