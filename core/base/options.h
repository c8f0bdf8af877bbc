// Options: what a row of a table lets people set (losses, optimizers, schedules, metrics, readers, templates, passes,
// keys of a strategy), and the attributes of ops. A row declares them; whatever form they are given in, they are read
// here, and what is wrong with them is said here.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/attributes.h"

namespace epl {

// What a number may be, and each one of a list: finite, from one end to the other. An end may be left out of it.
struct NumberRange {
  double from = -std::numeric_limits<double>::infinity(), to = std::numeric_limits<double>::infinity();
  bool without_from = false, without_to = false;

  bool is_any() const;
  bool holds(double number) const;
  std::string text() const;  // "0 or more", "from 0 to below 1"; empty for any number
};
inline NumberRange at_least(double from) { return {.from = from}; }
inline NumberRange more_than(double from) { return {.from = from, .without_from = true}; }

struct Option {
  std::string name;
  Attribute value;  // the default, or an example of the type when required
  bool required = false;
  std::string doc = {};                 // what it means
  std::vector<std::string> words = {};  // those that a text may be; empty: any
  bool json = false;                    // takes any JSON, and is read as its text, which is empty if it is not given
  NumberRange range = {};               // of numbers
};

// As people write them: name and text.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// `what` is whose options they are, for messages: "optimizer adam". An unknown name is the error `optimizer adam has no
// option "beta"; did you mean betas? There are: ...`, a wrong value `option "lr" of optimizer adam is x; a finite
// number is expected, 0 or more`.

// From a text as a user writes it: "0.9,0.95", "true", "12".
Result<Attribute> parse_option(std::string_view text, const Option& option, std::string_view what);
// Of those that are given; defaults are not filled in.
Result<Attributes> parse_options(const OptionTexts& given, const std::vector<Option>& declared, std::string_view what);
// From an object of JSON, with defaults filled in. An empty text: all defaults.
Result<Attributes> parse_options(std::string_view json, const std::vector<Option>& declared, std::string_view what);
// From values of whatever type, with defaults filled in, in the order of `declared`. An integer may stand for a number,
// and a single one for a list of them.
Result<Attributes> complete_options(const std::vector<Option>& declared, const Attributes& given,
                                    std::string_view what);
Status unknown_option(std::string_view name, const std::vector<std::string>& known, std::string_view what);

// A row by name with options, as in "top_k(k=5)". A name alone is a truth: "f(fast)" is "f(fast=true)".
struct RowText {
  std::string name;
  OptionTexts options;
};
// A list of them. `kind` is for messages: "metric".
Result<std::vector<RowText>> parse_rows(std::string_view list, char separator, std::string_view kind);

}  // namespace epl
