#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "tern/learner/weights/onnx/translator.h"

namespace tern::onnx {

namespace {

class Formula {
 public:
  Formula(Translator& t, const std::string& text) : t_(t), text_(text) {}

  void put() {
    const Values results = terms(t_.out().size());
    while (take('~')) argument();
    for (size_t i = 0; i < t_.count(); ++i) {
      if (used_.contains(i) || !t_.has(i)) continue;
      const c10::IValue given = t_.same(i);
      if (given != c10::IValue(false) && given != c10::IValue("none")) {
        t_.refuse(fmt::format("its argument {} is set; expected none", i));
      }
    }
    t_.give(results);
  }

 private:
  bool take(char c) {
    const bool is_there = at_ < text_.size() && text_[at_] == c;
    at_ += is_there ? 1 : 0;
    return is_there;
  }
  std::string word() {
    const size_t end =
        std::min(text_.find_first_of("(),=?~", at_), text_.size());
    const size_t begin = std::exchange(at_, end);
    return text_.substr(begin, end - begin);
  }
  size_t argument() { return *used_.insert(std::stoul(word())).first; }

  Values terms(size_t results = 1) {
    if (take('_')) return {nullptr};
    if (take('$')) return {t_.shape(t_.out_sizes())};
    if (take('[')) return t_.list(argument());
    if (take('!')) return {t_.transposed(argument())};
    if (take('@')) return {t_.int_list(t_.ints(argument()))};
    Type type;
    if (take('^')) type = t_.out_type();
    if (take('%')) type = c10::promoteTypes(t_.type(0), t_.type(1));
    if (take('#')) {
      const torch::ScalarType own = type.value_or(torch::kFloat);
      return {t_.constant(torch::full({}, std::stod(word()), own))};
    }
    if (std::isdigit(text_[at_]) == 0) return call(results);
    const size_t i = argument();
    if (!take('?') && !t_.has(i)) {
      t_.refuse(fmt::format("its argument {} is None; expected a tensor", i));
    }
    return {t_.in(i, type)};
  }

  Values call(size_t results) {
    const std::string name = word();
    Values inputs;
    Attributes attributes;
    while (!take(')')) {
      ++at_;  // ( or ,
      if (std::islower(text_[at_]) == 0) {
        for (Value* const value : terms()) inputs.push_back(value);
      } else {
        const std::string key = word();
        ++at_;
        attributes.emplace_back(key, attribute());
      }
    }
    return t_.ops(name, inputs, attributes, results);
  }

  c10::IValue attribute() {
    if (take('\'')) return word();
    if (take('.')) return t_.number(argument());
    if (take('@')) return t_.ints(argument());
    if (take('-')) return -std::ssize(t_.ints(argument()));
    if (take('+')) {
      Ints sides;
      for (const Size& size : t_.sizes(argument())) sides.push_back(size[0]);
      return Ints(sides.begin() + 2, sides.end());
    }
    const size_t sides = t_.sizes(0).size() - 2;
    if (take('&')) return t_.ints(argument(), 2 * sides);
    if (take('*')) {
      const Ints given = t_.ints(argument(), sides);
      return given.empty() ? t_.ints(1, sides) : given;
    }
    if (!take('#')) return t_.same(argument());
    const std::string number = word();
    if (number.find('.') != std::string::npos) return std::stod(number);
    return std::stoi(number);
  }

  Translator& t_;
  std::string text_;
  size_t at_ = 0;
  std::set<size_t> used_;
};

}  // namespace

void formula(Translator& t, const std::string& text) {
  Formula(t, text).put();
}

}  // namespace tern::onnx
