//===- Arguments.cpp - options of one command -------------------------------===//

#include "tools/megalith/Arguments.h"
#include "tools/megalith/Failure.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace megalith::cli {

static std::string dashed(StringRef name) {
  return (name.size() == 1 ? "-" : "--") + name.str();
}

/// "--rows <list>"
static std::string usageOf(const Option &option) {
  return dashed(option.name) + (option.value.empty() ? "" : " " + option.value.str());
}

StringRef nearest(StringRef word, ArrayRef<StringRef> names) {
  StringRef best;
  unsigned least = 3; // more edits than that is another word
  for (StringRef name : names)
    if (unsigned edits = word.edit_distance(name); edits < least && edits < name.size()) {
      least = edits;
      best = name;
    }
  return best;
}

Expected<Arguments> Arguments::parse(const Syntax &syntax, ArrayRef<StringRef> words) {
  Arguments arguments(syntax);
  SmallVector<StringRef> names;
  for (const Option &option : syntax.options)
    names.push_back(option.name);
  const std::string mend = formatv("; see megalith {0} --help", syntax.command).str();

  for (size_t i = 0; i < words.size(); ++i) {
    StringRef word = words[i];
    if (!word.starts_with("-")) {
      if (syntax.positional.empty())
        return failure(Exit::CommandLine, "expected options only but got '{0}'{1}", word, mend);
      const bool isFirst = arguments.position.empty();
      if (!isFirst && syntax.subject.empty())
        return failure(Exit::CommandLine, "expected one {0} but got '{1}' and '{2}'{3}",
                       syntax.positional, arguments.position, word, mend);
      if (!isFirst && !arguments.second.empty())
        return failure(Exit::CommandLine, "expected one {0} but got '{1}' and '{2}'{3}",
                       syntax.subject, arguments.second, word, mend);
      if (word.empty())
        return failure(Exit::CommandLine, "expected {0} but got an empty word{1}",
                       isFirst ? syntax.positional : syntax.subject, mend);
      (isFirst ? arguments.position : arguments.second) = word;
      continue;
    }
    auto [name, value] = word.ltrim('-').split('=');
    const bool attached = word.contains('=');
    const auto *option = find_if(syntax.options, [&](const Option &o) { return o.name == name; });
    if (option == syntax.options.end()) {
      StringRef close = nearest(name, names);
      return failure(Exit::CommandLine, "unknown option '{0}'{1}{2}", word.split('=').first,
                     close.empty() ? "" : ", did you mean " + dashed(close) + "?", mend);
    }
    if (option->value.empty() && attached)
      return failure(Exit::CommandLine, "{0}: expected no value but got '{1}'{2}", dashed(name),
                     value, mend);
    if (!option->value.empty() && !attached) {
      if (i + 1 == words.size() ||
          (words[i + 1].starts_with("-") && words[i + 1].size() > 1 && !isDigit(words[i + 1][1])))
        return failure(Exit::CommandLine, "{0}: expected {1} but got {2}{3}", dashed(name),
                       option->value,
                       i + 1 == words.size() ? "nothing" : "'" + words[i + 1].str() + "'", mend);
      value = words[++i];
    }
    if (!option->value.empty() && value.empty())
      return failure(Exit::CommandLine, "{0}: expected {1} but got an empty value{2}", dashed(name),
                     option->value, mend);
    if (!arguments.values.try_emplace(option->name, value).second)
      return failure(Exit::CommandLine, "{0} is given twice; give it once", dashed(name));
  }
  if (arguments.position.empty() && !syntax.positional.empty())
    return failure(Exit::CommandLine, "expected {0} but got nothing; for example: {1}",
                   syntax.positional, syntax.example);
  for (const Option &option : syntax.options)
    if (option.required && !arguments.has(option.name))
      return failure(Exit::CommandLine, "expected {0} but got no such option; for example: {1}",
                     usageOf(option), syntax.example);
  return arguments;
}

StringRef Arguments::text(StringRef name, StringRef otherwise) const {
  auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

static Error notAChoice(StringRef name, StringRef word, ArrayRef<StringRef> choices) {
  StringRef close = nearest(word, choices);
  return failure(Exit::CommandLine, "{0}: expected {1}{2} but got '{3}'{4}", dashed(name),
                 choices.size() > 1 ? "one of " : "", join(choices, ", "), word,
                 close.empty() ? "" : "; did you mean " + close.str() + "?");
}

Expected<StringRef> Arguments::choice(StringRef name, ArrayRef<StringRef> choices) const {
  StringRef word = text(name, choices.front());
  if (!is_contained(choices, word))
    return notAChoice(name, word, choices);
  return word;
}

static Expected<int64_t> parseInteger(StringRef name, StringRef word, int64_t least, int64_t most) {
  int64_t number = 0;
  if (word.getAsInteger(10, number) || number < least || number > most)
    return failure(Exit::CommandLine, "{0}: expected a number from {1} to {2} but got '{3}'",
                   dashed(name), least, most, word);
  return number;
}

Expected<int64_t> Arguments::integer(StringRef name, int64_t least, int64_t most,
                                     int64_t otherwise) const {
  return has(name) ? parseInteger(name, text(name), least, most) : otherwise;
}

Expected<std::vector<int64_t>> Arguments::integers(StringRef name, int64_t least,
                                                   int64_t most) const {
  std::vector<int64_t> numbers;
  if (!has(name))
    return numbers;
  for (StringRef word : split(text(name), ',')) {
    Expected<int64_t> number = parseInteger(name, word, least, most);
    if (!number)
      return number.takeError();
    numbers.push_back(*number);
  }
  return numbers;
}

Expected<std::vector<StringRef>> Arguments::choices(StringRef name,
                                                    ArrayRef<StringRef> choices) const {
  std::vector<StringRef> words;
  if (!has(name))
    return words;
  for (StringRef word : split(text(name), ',')) {
    if (!is_contained(choices, word))
      return notAChoice(name, word, choices);
    if (is_contained(words, word))
      return failure(Exit::CommandLine, "{0}: expected each value once but got '{1}' twice",
                     dashed(name), word);
    words.push_back(word);
  }
  return words;
}

std::string helpText(const Syntax &syntax) {
  std::string required, text;
  raw_string_ostream os(text);
  size_t width = std::max(syntax.positional.size(), syntax.subject.size());
  for (const Option &option : syntax.options) {
    width = std::max(width, usageOf(option).size());
    if (option.required)
      required += " " + usageOf(option);
  }
  os << "megalith " << syntax.command << ": " << syntax.summary << "\n\nusage: megalith "
     << syntax.command << (syntax.positional.empty() ? "" : " ") << syntax.positional
     << (syntax.subject.empty() ? "" : " [" + syntax.subject.str() + "]") << required
     << " [options]\n\n";
  auto line = [&](StringRef left, StringRef right) {
    os << "  " << left_justify(left, width) << "  " << right << "\n";
  };
  if (!syntax.positional.empty())
    line(syntax.positional, syntax.positionalHelp);
  if (!syntax.subject.empty())
    line(syntax.subject, syntax.subjectHelp);
  for (const Option &option : syntax.options)
    line(usageOf(option), option.help);
  os << "\nexample:\n  " << syntax.example << "\n";
  return text;
}

} // namespace megalith::cli
