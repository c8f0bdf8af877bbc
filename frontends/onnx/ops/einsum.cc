// Sums of products named by letters: operands are brought to [shared, own, summed] and multiplied as matrices.
#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/shown.h"
#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

struct Term {
  Var value;
  std::string letters;  // one for each dimension; those of an ellipsis are digits, the last dimension '0'
};

class Einsum {
 public:
  explicit Einsum(Import& i) : i_(i), b_(i.b) {}

  void run() {
    if (!parse()) return;
    for (Term& term : terms_) {
      if (!diagonal(term)) return;
    }
    Term total = terms_[0];
    for (size_t k = 1; k < terms_.size(); ++k) {
      std::string later = result_;
      for (size_t m = k + 1; m < terms_.size(); ++m) later += terms_[m].letters;
      total = product(total, terms_[k], later);
    }
    total = summed(total, result_);
    if (!b_.status().ok()) return;
    Ints order;
    for (char c : result_) {
      size_t at = total.letters.find(c);
      if (at == std::string::npos)
        return i_.fail(cat("equation ", equation_, ": nothing is named ", std::string(1, c)));
      order.push_back(static_cast<int64_t>(at));
    }
    i_.set(0, order.empty() ? total.value : b_.emit("transpose", {total.value}, {{"perm", order}}));
  }

 private:
  bool refuse(std::string why) {
    i_.fail(cat("equation ", shown(equation_, 200), ": ", why));
    return false;
  }

  // "..." as digits, so that all dimensions have one character.
  bool letters_of(std::string text, int ndim, std::string& out) {
    size_t dots = text.find("...");
    int wide = 0;
    if (dots != std::string::npos) {
      wide = ndim - static_cast<int>(text.size() - 3);
      if (wide < 0 || wide > 9) return refuse(cat(text, " does not fit an operand of ", ndim, " dimensions"));
      std::string digits;
      for (int k = wide; k > 0; --k) digits += static_cast<char>('0' + k - 1);
      text.replace(dots, 3, digits);
      widest_ = std::max(widest_, wide);
    }
    if (static_cast<int>(text.size()) != ndim)
      return refuse(cat(text, " does not fit an operand of ", ndim, " dimensions"));
    out = text;
    return true;
  }

  bool parse() {
    equation_ = i_.text("equation", "");
    std::string text;
    for (char c : equation_) {
      if (c != ' ') text += c;
    }
    size_t arrow = text.find("->");
    std::string left = text.substr(0, arrow);
    for (int k = 0; k < i_.inputs(); ++k) {
      size_t comma = left.find(',');
      if ((comma == std::string::npos) != (k + 1 == i_.inputs()))
        return refuse(cat("it does not name ", i_.inputs(), " operands"));
      Term term{i_.in(k), {}};
      if (!letters_of(left.substr(0, comma), term.value.ndim(), term.letters)) return false;
      terms_.push_back(std::move(term));
      if (comma != std::string::npos) left.erase(0, comma + 1);
    }
    if (terms_.empty()) return refuse("there is no operand");
    std::map<char, int> counts;
    for (const Term& term : terms_) {
      for (size_t d = 0; d < term.letters.size(); ++d) {
        char c = term.letters[d];
        if (!std::isalnum(static_cast<unsigned char>(c))) return refuse("only letters name dimensions");
        ++counts[c];
        int64_t size = term.value.dim(static_cast<int>(d)), &known = sizes_.emplace(c, size).first->second;
        if (known == 1) known = size;
        if (size != known && size != 1) return refuse(cat(std::string(1, c), " is ", known, " and ", size));
      }
    }
    std::string digits;
    for (int k = widest_; k > 0; --k) digits += static_cast<char>('0' + k - 1);
    if (arrow != std::string::npos) {
      result_ = text.substr(arrow + 2);
      if (size_t dots = result_.find("..."); dots != std::string::npos) result_.replace(dots, 3, digits);
    } else {  // the ellipsis, then letters that occur once, in order
      result_ = digits;
      for (const auto& [c, count] : counts) {
        if (std::isalpha(static_cast<unsigned char>(c)) && count == 1) result_ += c;
      }
    }
    return b_.status().ok();
  }

  // A letter twice in one operand means the diagonal.
  bool diagonal(Term& term) {
    for (size_t d = 0; d < term.letters.size(); ++d) {
      size_t other = term.letters.find(term.letters[d], d + 1);
      if (other == std::string::npos) continue;
      int64_t size = term.value.dim(static_cast<int>(d));
      if (size != term.value.dim(static_cast<int>(other))) return refuse("a diagonal of unequal sizes");
      Ints order;
      for (size_t k = 0; k < term.letters.size(); ++k) {
        if (k != d && k != other) order.push_back(static_cast<int64_t>(k));
      }
      Ints last = order;
      last.push_back(static_cast<int64_t>(d));
      last.push_back(static_cast<int64_t>(other));
      Var moved = b_.emit("transpose", {term.value}, {{"perm", last}});
      Shape flat(moved.shape().begin(), moved.shape().end() - 2);
      const int axis = static_cast<int>(flat.size());
      flat.push_back(size * size);
      epl::Tensor places({DType::i64, {size}});
      for (int64_t k = 0; k < size; ++k) places.set_int(k, k * (size + 1));
      term.value = b_.emit("gather", {b_.reshape(moved, flat), b_.constant(places)}, {{"axis", int64_t{axis}}});
      std::string letters;
      for (int64_t k : order) letters += term.letters[k];
      term.letters = letters + term.letters[d];
      d = static_cast<size_t>(-1);  // once more from the start
    }
    return b_.status().ok();
  }

  // Without the letters that nothing later needs.
  Term summed(const Term& term, const std::string& needed) {
    Ints axes;
    std::string letters;
    for (size_t d = 0; d < term.letters.size(); ++d) {
      if (needed.find(term.letters[d]) == std::string::npos) {
        axes.push_back(static_cast<int64_t>(d));
      } else {
        letters += term.letters[d];
      }
    }
    return {b_.sum(term.value, axes, false), letters};
  }

  // `value` with its dimensions in the order of groups, each group one dimension; sizes of one are enlarged.
  Var grouped(const Term& term, const std::vector<std::string>& groups) {
    Ints order, shape;
    Shape full;
    for (const std::string& group : groups) {
      int64_t size = 1;
      for (char c : group) {
        order.push_back(static_cast<int64_t>(term.letters.find(c)));
        full.push_back(sizes_[c]);
        size *= sizes_[c];
      }
      shape.push_back(size);
    }
    Var moved = order.empty() ? term.value : b_.transpose(term.value, order);
    return b_.reshape(b_.broadcast_to(moved, full), shape);
  }

  Term product(const Term& a0, const Term& b0, const std::string& later) {
    Term a = summed(a0, later + b0.letters), b = summed(b0, later + a0.letters);
    std::string shared, inner, left, right;
    for (char c : a.letters) {
      bool in_b = b.letters.find(c) != std::string::npos, kept = later.find(c) != std::string::npos;
      (in_b ? kept ? shared : inner : left) += c;
    }
    for (char c : b.letters) {
      if (a.letters.find(c) == std::string::npos) right += c;
    }
    Var y = b_.matmul(grouped(a, {shared, left, inner}), grouped(b, {shared, inner, right}));
    std::string letters = shared + left + right;
    Shape shape;
    for (char c : letters) shape.push_back(sizes_[c]);
    return {b_.reshape(y, shape), letters};
  }

  Import& i_;
  Builder& b_;
  std::string equation_, result_;
  std::vector<Term> terms_;
  std::map<char, int64_t> sizes_;
  int widest_ = 0;
};

}  // namespace

EPL_ONNX_OP(Einsum) {
  return {.run = [](Import& i) { Einsum(i).run(); }};
}

}  // namespace epl::onnx
