#include "engine/history.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>

#include "ops/op.h"

namespace torch_tpu::engine {
namespace {

constexpr size_t kMostDifferences = 3;  // that are told

std::atomic<ArgumentName> argument_name_function{nullptr};

template <class List, class Write>
std::string joined(const List& list, const Write& write) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + write(list[i]);
  return text + "]";
}

std::string text_of(bool flag) { return flag ? "True" : "False"; }
std::string text_of(int64_t number) { return std::to_string(number); }
std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}
template <class Element>
std::string text_of(const std::vector<Element>& list) {
  return joined(list, [](Element element) { return text_of(element); });
}

std::string text_of(const ops::ScalarSlot& slot) {
  if (!slot.wrapped) return "a CPU tensor of " + std::string(hlo::name(slot.dtype));
  if (hlo::is_complex(slot.dtype)) return "a Python complex";
  if (hlo::is_float(slot.dtype)) return "a Python float";
  return slot.dtype == hlo::DType::kPred ? "a Python bool" : "a Python int";
}

/// An argument of `call` as one would say it.
std::string text_of(const ops::Arg& arg, const ops::Call& call) {
  if (const auto* tensor = std::get_if<ops::TensorArg>(&arg)) return call.inputs[tensor->input].text();
  if (const auto* list = std::get_if<ops::TensorListArg>(&arg)) {
    return joined(list->inputs, [&](int i) { return i < 0 ? "None" : call.inputs[i].text(); });
  }
  if (const auto* scalar = std::get_if<ops::ScalarArg>(&arg)) return text_of(call.scalars[scalar->slot]);
  if (const auto* list = std::get_if<ops::ScalarListArg>(&arg)) {
    return joined(list->slots, [&](int slot) { return text_of(call.scalars[slot]); });
  }
  if (const auto* number = std::get_if<int64_t>(&arg)) return text_of(*number);
  if (const auto* number = std::get_if<double>(&arg)) return text_of(*number);
  if (const auto* flag = std::get_if<bool>(&arg)) return text_of(*flag);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&arg)) return text_of(*list);
  if (const auto* list = std::get_if<std::vector<double>>(&arg)) return text_of(*list);
  if (const auto* list = std::get_if<std::vector<bool>>(&arg)) return text_of(*list);
  if (const auto* dtype = std::get_if<hlo::DType>(&arg)) return std::string(hlo::name(*dtype));
  if (const auto* text = std::get_if<std::string>(&arg)) return "'" + *text + "'";
  return "None";
}

/// The inputs that an argument stands for.
std::vector<int> inputs_of(const ops::Arg& arg) {
  if (const auto* tensor = std::get_if<ops::TensorArg>(&arg)) return {tensor->input};
  if (const auto* list = std::get_if<ops::TensorListArg>(&arg)) return list->inputs;
  return {};
}

std::string argument_name(const std::string& op, size_t position) {
  const ArgumentName function = argument_name_function;
  const std::string name = function != nullptr ? function(op, static_cast<int>(position)) : "";
  return name.empty() ? std::to_string(position) : name;
}

std::string names_of(const std::vector<ops::CallPtr>& calls, size_t first, size_t end) {
  std::string text;
  for (size_t i = first; i < std::min(end, first + kMostDifferences); ++i)
    text += (i > first ? ", " : "") + calls[i]->op->name;
  const size_t more = end - first > kMostDifferences ? end - first - kMostDifferences : 0;
  return more > 0 ? text + " and " + std::to_string(more) + " more" : text;
}

}  // namespace

void set_argument_name(ArgumentName function) { argument_name_function = function; }

History::Description::Description(const Program& program)
    : key(program.key),
      calls(program.graph.calls),
      references(program.graph.references),
      results(program.results) {
  for (size_t i = 0; i < program.leaves.size(); ++i) {
    if (program.successors[i] >= 0) given_away.push_back(program.leaves[i]);
  }
}

/// Of two descriptions of the same operators.
class History::Comparison {
 public:
  Comparison(const Program& program, const Description& now, const Description& before)
      : program_(program), now_(now), before_(before) {
    for (size_t i = 0; i < now_.calls.size(); ++i) {
      compare_call(i);
      next_now_ += now_.calls[i]->inputs.size();
      next_before_ += before_.calls[i]->inputs.size();
    }
    if (differences_.empty()) compare_results();
    if (differences_.empty()) compare_given_away();
  }

  size_t count() const { return differences_.size(); }
  std::string text() const;

 private:
  void compare_call(size_t i);
  void compare_argument(size_t i, size_t position);
  bool reads_the_same(int input) const {
    return now_.references[next_now_ + input] == before_.references[next_before_ + input];
  }
  void compare_results();
  void compare_given_away();
  std::string operator_text(size_t i) const;
  std::string value_text(Reference reference) const;
  size_t call_of(size_t output) const;

  const Program& program_;
  const Description& now_;
  const Description& before_;
  size_t next_now_ = 0;  // references of the call that is looked at
  size_t next_before_ = 0;
  std::vector<Reference> told_inputs_;
  std::vector<std::string> differences_;
};

/// "aten::mm (operator 3, train.py:12)": numbers count what the program computes.
std::string History::Comparison::operator_text(size_t i) const {
  const std::string& name = now_.calls[i]->op->name;
  if (!program_.needed[i]) return name + " (unused)";
  const auto number = 1 + std::count(program_.needed.begin(), program_.needed.begin() + i, 1);
  const std::string& source = program_.graph.source_of(i);
  return name + " (operator " + std::to_string(number) + (source.empty() ? "" : ", " + source) + ")";
}

size_t History::Comparison::call_of(size_t output) const {
  size_t call = 0;
  while (call + 1 < program_.graph.nodes.size() && program_.graph.nodes[call + 1].first_output <= output)
    ++call;
  return call;
}

std::string History::Comparison::value_text(Reference reference) const {
  if (reference < 0) return "input " + std::to_string(-reference);
  return "the result of " + operator_text(call_of(static_cast<size_t>(reference)));
}

void History::Comparison::compare_argument(size_t i, size_t position) {
  const ops::Call& now = *now_.calls[i];
  const ops::Call& before = *before_.calls[i];
  const std::string text = text_of(now.args[position], now);
  const std::string text_before = text_of(before.args[position], before);
  const std::vector<int> inputs = inputs_of(now.args[position]);
  const std::string where =
      "argument " + argument_name(now.op->name, position) + " of " + operator_text(i) + ": ";
  if (inputs_of(before.args[position]) != inputs || inputs.empty()) {
    if (text != text_before) differences_.push_back(where + text + " was " + text_before);
    return;
  }
  for (const int input : inputs) {
    if (input < 0) continue;
    const Reference reference = now_.references[next_now_ + input];
    if (!reads_the_same(input)) {
      differences_.push_back(where + value_text(reference) + " was " +
                             value_text(before_.references[next_before_ + input]));
    } else if (reference < 0 && text != text_before &&
               std::find(told_inputs_.begin(), told_inputs_.end(), reference) == told_inputs_.end()) {
      // Other types of results follow from those of inputs.
      told_inputs_.push_back(reference);
      differences_.push_back(where + text + " was " + text_before);
    }
  }
}

void History::Comparison::compare_call(size_t i) {
  const ops::Call& now = *now_.calls[i];
  const ops::Call& before = *before_.calls[i];
  const size_t count = differences_.size();
  if (now.args.size() != before.args.size()) {
    differences_.push_back("the arguments of " + operator_text(i));
    return;
  }
  for (size_t position = 0; position < now.args.size(); ++position) compare_argument(i, position);
  if (now.hash == before.hash || differences_.size() > count) return;
  if (now.default_dtype != before.default_dtype) {
    differences_.push_back("the default dtype of " + operator_text(i) + ": " +
                           std::string(hlo::name(now.default_dtype)) + " was " +
                           std::string(hlo::name(before.default_dtype)));
  } else if (now.body != nullptr) {
    differences_.push_back("another compiled graph");
  } else if (now.inputs == before.inputs) {
    differences_.push_back("the memory layout of the arguments of " + operator_text(i));
  }
}

void History::Comparison::compare_results() {
  const auto tell = [&](const std::vector<uint32_t>& some, const std::vector<uint32_t>& others,
                        const char* what) {
    for (const uint32_t result : some) {
      if (std::find(others.begin(), others.end(), result) == others.end())
        differences_.push_back(value_text(static_cast<Reference>(result)) + what);
    }
  };
  tell(now_.results, before_.results, " is wanted too");
  tell(before_.results, now_.results, " is no longer wanted");
}

void History::Comparison::compare_given_away() {
  const auto tell = [&](const std::vector<uint32_t>& some, const std::vector<uint32_t>& others,
                        const char* what) {
    for (const uint32_t leaf : some) {
      if (std::find(others.begin(), others.end(), leaf) == others.end())
        differences_.push_back("input " + std::to_string(leaf + 1) + what);
    }
  };
  tell(now_.given_away, before_.given_away, " is given away (its memory becomes a result's)");
  tell(before_.given_away, now_.given_away, " is no longer given away: somebody still holds it");
}

std::string History::Comparison::text() const {
  std::string text;
  for (size_t i = 0; i < std::min(differences_.size(), kMostDifferences); ++i)
    text += (i > 0 ? "; " : "") + differences_[i];
  const size_t more = differences_.size() - std::min(differences_.size(), kMostDifferences);
  return more > 0 ? text + "; and " + std::to_string(more) + " more" : text;
}

History& History::of_process() {
  static History& instance = *new History;
  return instance;
}

void History::add(const Program& program) {
  Description description(program);
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const Description& known) {
    if (!(known.key == description.key)) return false;
    known_calls_ -= known.calls.size();
    return true;
  });
  known_calls_ += description.calls.size();
  known_.push_back(std::move(description));
  while (known_calls_ > kMostCalls && known_.size() > 1) {
    known_calls_ -= known_.front().calls.size();
    known_.pop_front();
  }
}

std::string History::difference(const Program& program) const {
  const Description now(program);
  const std::lock_guard lock(mutex_);
  const auto same_op = [](const ops::CallPtr& a, const ops::CallPtr& b) { return a->op == b->op; };
  std::optional<Comparison> nearest;
  const Description* similar = nullptr;  // with the longest common beginning and end
  size_t prefix = 0;
  size_t suffix = 0;
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    if (known->key == now.key) return "it was known, but is no longer kept in memory";
    const auto [end, end_known] =
        std::mismatch(now.calls.begin(), now.calls.end(), known->calls.begin(), known->calls.end(), same_op);
    if (end == now.calls.end() && end_known == known->calls.end()) {
      Comparison comparison(program, now, *known);
      if (!nearest || comparison.count() < nearest->count()) nearest.emplace(std::move(comparison));
      continue;
    }
    const auto [back, back_known] =
        std::mismatch(now.calls.rbegin(), std::make_reverse_iterator(end), known->calls.rbegin(),
                      std::make_reverse_iterator(end_known), same_op);
    const auto in_front = static_cast<size_t>(end - now.calls.begin());
    const auto behind = static_cast<size_t>(back - now.calls.rbegin());
    if (2 * (in_front + behind) < std::max(now.calls.size(), known->calls.size()) ||
        in_front + behind <= prefix + suffix)
      continue;
    similar = &*known;
    prefix = in_front;
    suffix = behind;
  }
  if (nearest) return nearest->count() > 0 ? nearest->text() : "another setting of the engine";
  if (similar == nullptr) return "first program of these operators";
  const std::string mine = names_of(now.calls, prefix, now.calls.size() - suffix);
  const std::string theirs = names_of(similar->calls, prefix, similar->calls.size() - suffix);
  const std::string place =
      prefix == 0 ? "at its start" : "after its first " + std::to_string(prefix) + " operators";
  return "first program of these operators; " + place + " it has " + (mine.empty() ? "nothing" : mine) +
         " where the nearest has " + (theirs.empty() ? "nothing" : theirs);
}

}  // namespace torch_tpu::engine
