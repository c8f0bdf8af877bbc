#include "core/program/sum_moves.h"

#include <algorithm>

namespace epl {
namespace {

// Writes moves, of which some are between rounding and widening.
class NarrowMoves {
 public:
  NarrowMoves(const SumForm& form, const TensorType& given) : form_(form), wide_(given.dtype), type_(given) {}

  void round(std::vector<Move>& out) {
    const auto scale = static_cast<double>(form_.scale);
    if (form_.scale != 1) out.push_back({.op = "mul", .suffix = ".scaled", .type = type_, .factor = scale});
    convert(form_.type, ".narrow", out);
  }
  // The scale goes behind it, where nothing small is lost.
  void widen(std::vector<Move>& out) {
    const auto scale = static_cast<double>(form_.scale);
    convert(wide_, ".wide", out);
    if (form_.scale != 1) out.push_back({.op = "mul", .suffix = ".unscaled", .type = type_, .factor = 1 / scale});
  }
  void add(Move move, std::vector<Move>& out) {
    move.type.dtype = type_.dtype;
    type_ = move.type;
    out.push_back(std::move(move));
  }

 private:
  void convert(DType type, const char* suffix, std::vector<Move>& out) {
    type_.dtype = type;
    out.push_back({.op = "cast", .suffix = suffix, .attributes = {{"to", type}}, .type = type_});
  }

  const SumForm& form_;
  const DType wide_;
  TensorType type_;  // of the current value
};

}  // namespace

SumMoves moves_in_form(const SumForm& form, const TensorType& given, std::vector<Move> moves) {
  SumMoves made;
  NarrowMoves narrow(form, given);
  const auto next_sum = [&](size_t from) {
    return std::find_if(moves.begin() + static_cast<std::ptrdiff_t>(from), moves.end(),
                        [](const Move& move) { return move.sums; });
  };
  // Whether the next sum is narrow: all are of units, else those over ranks.
  const auto goes_on = [&](size_t from) {
    const auto next = next_sum(from);
    return next != moves.end() && (form.of_units || !next->at_last_iteration);
  };
  bool is_narrow = form.of_units;
  if (is_narrow) narrow.round(made.parts);
  if (is_narrow && !goes_on(0)) {
    narrow.widen(made.rest);
    is_narrow = false;
  }
  for (size_t i = 0; i < moves.size(); ++i) {
    const bool sums = moves[i].sums && goes_on(i);
    if (sums && !is_narrow) {
      narrow.round(made.rest);
      is_narrow = true;
    }
    narrow.add(moves[i], made.rest);
    if (is_narrow && sums && !goes_on(i + 1)) {
      narrow.widen(made.rest);
      is_narrow = false;
    }
  }
  return made;
}

}  // namespace epl
