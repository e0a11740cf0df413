//===- Lint.cpp - Marks, instructions between them, and their order -------===//

#include "codegen/lint/Lint.h"

#include "codegen/lint/Inline.h"
#include "codegen/lint/Regions.h"
#include "codegen/lint/Summary.h"
#include "passes/verify/MemoryOrder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <set>

using namespace mlir;
using namespace megalith::task;

namespace megalith::lint {

namespace {

/// What is known where an instruction begins, whichever way led there.
struct State {
  bool isReached = false;
  int open = -1; ///< index of the mark whose end has not come
  // Since the mark began, on every way and on some way.
  uint8_t must = 0, may = 0;
  int expected = -1; ///< place of the expect_tx; -1: none or several
  // Since the kernel began.
  bool isReady = false;   ///< on every way: barriers are usable
  bool hasWaited = false; ///< on every way: the launch before is over
  bool hasBegun = false;  ///< on some way: a role is at work
  bool hasInit = false, hasFence = false;

  bool operator==(const State &) const = default;
};
enum Fact : uint8_t { Required = 1, Met = 2, Expected = 4, Copied = 8 };

/// What may and must stand between a mark and its end.
struct Rule {
  Mark mark;
  EdgeOp edge;                                   ///< null: a re-arming
  llvm::SmallVector<EdgeOp, 2> also;             ///< which polls of the edge wait for too
  llvm::SmallVector<StringRef, 3> required, may; ///< beginnings of opcodes
  StringRef width;                               ///< of words: ".b32" or ".b128"
  bool isSure = false;                           ///< on every way, not only by a lane
  bool needsMeeting = false;                     ///< of the warp's lanes, before it
  bool copies = false;                           ///< by bulk copies, for certain
};

class Linter {
public:
  Linter(KernelOp kernel, StringRef name) : kernel(kernel), name(name) {}

  std::vector<Finding> run(StringRef ptx) {
    auto read = readPtx(ptx);
    if (!read) {
      note(0, llvm::toString(read.takeError()) + "; give PTX as NVRTC prints it");
      return std::move(findings);
    }
    functions = std::move(*read);
    Summaries all(functions);
    summaries = &all;
    for (const Function &each : functions)
      if (each.isEntry && each.name == name)
        entry = &each;
    if (!entry) {
      note(0, llvm::formatv("expected an entry '{0}' but got none; to mend: give the PTX of this "
                            "kernel's source",
                            name));
      return std::move(findings);
    }
    whole = withMarksInlined(*entry, functions, all);
    entry = &whole;
    findRules();
    flow();
    judge();
    if (kernel) {
      checkInits();
      checkOrder();
    }
    llvm::stable_sort(findings, [](const Finding &a, const Finding &b) { return a.line < b.line; });
    return std::move(findings);
  }

private:
  void note(int line, std::string text) {
    if (line > 0)
      text = "line " + std::to_string(line) + ": " + text;
    for (const Finding &finding : findings)
      if (finding.text == text)
        return;
    findings.push_back({line, std::move(text)});
  }

  //===--------------------------------------------------------------------===//
  // What each mark asks for
  //===--------------------------------------------------------------------===//

  void findRules() {
    ruleOf.assign(entry->code.size(), -1);
    for (auto [place, instruction] : llvm::enumerate(entry->code)) {
      if (instruction.kind != Instruction::Begin)
        continue;
      const std::string text = instruction.mark.text();
      auto [it, isNew] = ruleByText.try_emplace(text, int(rules.size()));
      ruleOf[place] = it->second;
      if (!isNew)
        continue;
      Rule rule;
      rule.mark = instruction.mark;
      if (!complete(rule))
        note(instruction.line,
             text + ": expected a mark of this kernel's edges and of a verb and order in the table "
                    "of memory orders (docs/memory-order.md); to mend: mark what the role regions "
                    "name");
      rules.push_back(std::move(rule));
    }
  }

  /// Finds the mark's edge and its row in the table; false if there is none.
  bool complete(Rule &rule) {
    static constexpr StringRef kEmpty = "st.relaxed.gpu.global.b32";
    if (!kernel)
      return false;
    if (rule.mark.verb == "rearm") {
      rule.required = {kEmpty};
      return llvm::any_of(kernel.getOps<ExchangeOp>(), [&](ExchangeOp exchange) {
        return rearmMark(exchange) == rule.mark.text();
      });
    }
    rule.edge = kernel.lookup<EdgeOp>(
        FlatSymbolRefAttr::get(kernel.getContext(), StringRef(rule.mark.name)));
    if (!rule.edge)
      return false;
    const StringRef verb = rule.mark.verb, order = rule.mark.order;
    for (const order::Emitted &emitted : order::emitted())
      if (emitted.kind == rule.edge.getKind() && emitted.verb == verb && emitted.order == order) {
        rule.required.assign(emitted.instructions.begin(), emitted.instructions.end());
        rule.may.assign(emitted.allowed.begin(), emitted.allowed.end());
        rule.copies = verb == "copy";
        rule.isSure = order.starts_with("acquire") || verb == "pace";
        rule.needsMeeting = order.starts_with("release") || verb == "copy";
        for (auto exchange : kernel.getOps<ExchangeOp>())
          if (exchange.getEdge() == rule.edge.getSymName())
            rule.width = exchange.hasTriples() ? ".b128" : ".b32";
        kernel.walk([&](PollOp poll) {
          if (poll.getEdge() == rule.edge.getSymName() && poll.getAlsoAttr())
            rule.also.push_back(kernel.lookup<EdgeOp>(poll.getAlsoAttr()));
        });
        return true;
      }
    return false;
  }

  static bool startsWithAny(StringRef opcode, ArrayRef<StringRef> starts) {
    return llvm::any_of(starts, [&](StringRef start) {
      return opcode.starts_with(start) &&
             (opcode.size() == start.size() || opcode[start.size()] == '.' || start.ends_with("."));
    });
  }

  /// Whether a strong instruction may stand in the rule's marks, and, if it is the required one.
  enum class Fit { No, Allowed, Required };
  Fit fitOf(const Rule &rule, StringRef opcode) {
    const bool isWord =
        !rule.width.empty() && !opcode.starts_with("cp.") && !opcode.starts_with("mbarrier.");
    if (isWord && !opcode.ends_with(rule.width))
      return Fit::No;
    const StringRef order = rule.mark.order;
    if ((order.starts_with("acquire") || order.starts_with("release")) &&
        opcode.contains(".relaxed"))
      return Fit::No; // qualifiers that may be left out stand for more
    if (startsWithAny(opcode, rule.required))
      return Fit::Required;
    return startsWithAny(opcode, rule.may) ? Fit::Allowed : Fit::No;
  }

  std::string wanted(const Rule &rule) {
    std::string text = llvm::join(rule.required, " or ");
    if (!rule.width.empty())
      text += " (words of " + rule.width.drop_front().str() + ")";
    return text;
  }

  //===--------------------------------------------------------------------===//
  // What is known where
  //===--------------------------------------------------------------------===//

  State after(State state, int place) {
    const Instruction &instruction = entry->code[place];
    const StringRef opcode = instruction.opcode;
    if (instruction.kind == Instruction::Begin) {
      state.open = ruleOf[place];
      state.must = state.may = 0;
      state.expected = -1;
      state.hasBegun = true;
    } else if (instruction.kind == Instruction::End) {
      state.open = -1;
    } else if (instruction.kind == Instruction::Call) {
      if (state.open >= 0) {
        const Summary &called = summaries->of(instruction.callee);
        for (const std::string &strong : called.strong)
          if (fitOf(rules[state.open], strong) == Fit::Required) {
            state.may |= Required;
            if (llvm::is_contained(called.always, strong))
              state.must |= Required;
          }
      }
    } else if (opcode.starts_with("bar.warp.sync")) {
      if (!instruction.isConditional)
        state.must |= Met;
    } else if (opcode == "bar.sync") {
      if (instruction.operands == std::vector<std::string>{"0"})
        state.isReady = true;
    } else if (opcode == "griddepcontrol.wait") {
      if (!instruction.isConditional)
        state.hasWaited = true;
      if (state.open < 0)
        state.hasBegun = true;
    }
    if (opcode.starts_with("mbarrier.init"))
      state.hasInit = true;
    if (opcode.starts_with("fence.mbarrier_init"))
      state.hasFence = true;
    if (state.open >= 0 && isStrong(opcode)) {
      const Fit fit = fitOf(rules[state.open], opcode);
      uint8_t facts = fit == Fit::Required ? Required : 0;
      if (opcode.contains("expect_tx")) {
        facts |= Expected;
        state.expected = place;
      }
      if (opcode.starts_with("cp.async.bulk"))
        facts |= Copied;
      state.may |= facts;
      if (!instruction.isConditional)
        state.must |= facts;
    }
    return state;
  }

  void flow() {
    regions = kernel ? std::make_unique<Regions>(kernel) : nullptr;
    states.assign(entry->code.size() + 1, State());
    states[0].isReached = true;
    std::vector<int> work = {0};
    while (!work.empty()) {
      const int place = work.back();
      work.pop_back();
      if (place == int(entry->code.size()))
        continue;
      const State out = after(states[place], place);
      for (int next : entry->next(place)) {
        State &there = states[next];
        State joined = out;
        if (there.isReached) {
          if (there.open != out.open)
            note(entry->code[place].line,
                 llvm::formatv("here {0}, but other ways to line {1} come {2}; to mend: let each "
                               "mark and its end be passed together",
                               openText(out.open), lineAt(next), openText(there.open)));
          joined.open = there.open;
          joined.must &= there.must;
          joined.may |= there.may;
          joined.expected = out.expected == there.expected ? out.expected : -1;
          joined.isReady &= there.isReady;
          joined.hasWaited &= there.hasWaited;
          joined.hasBegun |= there.hasBegun;
          joined.hasInit |= there.hasInit;
          joined.hasFence |= there.hasFence;
        }
        joined.isReached = true;
        if (joined == there)
          continue;
        there = joined;
        work.push_back(next);
      }
    }
  }

  int lineAt(int place) const {
    return place < int(entry->code.size()) ? entry->code[place].line : 0;
  }
  std::string openText(int open) {
    return open < 0 ? "behind a mark's end" : "inside '" + rules[open].mark.text() + "'";
  }

  //===--------------------------------------------------------------------===//
  // What is wrong
  //===--------------------------------------------------------------------===//

  void judge() {
    for (auto [place, instruction] : llvm::enumerate(entry->code))
      if (states[place].isReached)
        judge(states[place], instruction, int(place));
  }

  void judge(const State &state, const Instruction &instruction, int place) {
    const StringRef opcode = instruction.opcode;
    if (instruction.kind == Instruction::Begin) {
      if (state.open >= 0)
        note(instruction.line, instruction.mark.text() + ": begins inside '" +
                                   rules[state.open].mark.text() +
                                   "', which has no end on this way; to mend: end it first "
                                   "(platform::mark_end)");
      EdgeOp edge = rules[ruleOf[place]].edge;
      if (edge && !edge.isGlobal() && !state.isReady)
        note(instruction.line, instruction.mark.text() +
                                   ": comes before the CTA has met behind the barriers' set-up; "
                                   "to mend: call setup<…> first");
    } else if (instruction.kind == Instruction::End) {
      if (state.open < 0)
        note(instruction.line, "a mark's end without its beginning; to mend: mark the edge's verb "
                               "in front (platform::mark)");
      else
        judgeEnd(state, instruction);
    } else if (instruction.kind == Instruction::Call) {
      judgeCall(state, instruction, place);
    } else if (isStrong(opcode)) {
      state.open < 0 ? judgeOutside(state, instruction) : judgeInside(state, instruction);
    } else if (opcode.starts_with("st.global") && !state.hasWaited && storesLate()) {
      note(instruction.line, "'" + opcode.str() +
                                 "' may come before the launch before is over, which may still "
                                 "read what it overwrites; to mend: task.launch_wait before the "
                                 "role's first store");
    } else if (opcode == "bar.sync" && !state.hasBegun && state.hasInit && !state.hasFence) {
      note(instruction.line, "mbarriers are initialised but not made visible to bulk copies "
                             "(fence.mbarrier_init) before the CTA meets; to mend: "
                             "platform::fence_mbarrier_init");
    }
  }

  /// Whether weak stores must come behind griddepcontrol.wait as PTX shows it. What a kernel with
  /// --trace records may come before; in a looping kernel ways that skip the wait are many, and
  /// none of them is ever taken: there the proof and the order of marks stand alone.
  bool storesLate() { return !kernel || (!kernel.getTrace() && !kernel.isLooping()); }

  void judgeEnd(const State &state, const Instruction &instruction) {
    const Rule &rule = rules[state.open];
    if (rule.required.empty())
      return;
    const bool isThere = (rule.isSure ? state.must : state.may) & Required ||
                         (!rule.isSure && !rule.copies && state.may & Copied);
    if (!isThere)
      note(instruction.line,
           llvm::formatv("{0}: expected {1}{2} between the mark and its end but got none; to mend: "
                         "call the device function of the verb between the two",
                         rule.mark.text(), wanted(rule),
                         rule.isSure && state.may & Required ? " on every way" : ""));
    else if (rule.copies && !(state.may & Copied))
      note(instruction.line, rule.mark.text() + ": expected cp.async.bulk between the mark and its "
                                                "end but got none; to mend: copy there, or nobody "
                                                "completes the bytes it expects");
  }

  void judgeInside(const State &state, const Instruction &instruction) {
    const Rule &rule = rules[state.open];
    const StringRef opcode = instruction.opcode;
    const Fit fit = fitOf(rule, opcode);
    if (fit == Fit::No)
      return note(instruction.line,
                  llvm::formatv("{0}: expected {1} but got '{2}', whose order, scope or width the "
                                "table of memory orders does not give this edge; to mend: the "
                                "platform's function of that verb (docs/memory-order.md)",
                                rule.mark.text(), wanted(rule), opcode));
    if (fit == Fit::Required && rule.needsMeeting) {
      if (!(state.must & Met))
        note(instruction.line, llvm::formatv("{0}: '{1}' comes before the lanes of the warp have "
                                             "met (bar.warp.sync of all), so it says nothing of "
                                             "what others did; to mend: warp_sync behind the mark",
                                             rule.mark.text(), opcode));
      if (state.may & Required)
        note(instruction.line,
             llvm::formatv("{0}: a second '{1}' between the mark and its end; the edge counts one "
                           "arrival a warp; to mend: one call of the verb for each step",
                           rule.mark.text(), opcode));
    }
    if (opcode.starts_with("cp.async.bulk")) {
      if (!(state.must & Expected))
        return note(instruction.line, rule.mark.text() +
                                          ": the copy comes before its bytes are expected on the "
                                          "barrier (expect_tx); to mend: expect them first");
      if (state.expected < 0 || instruction.operands.size() < 4)
        return;
      // [to], [from], bytes, [barrier]; state, [barrier], bytes or [barrier], bytes.
      const Instruction &expect = entry->code[state.expected];
      const size_t which = StringRef(expect.opcode).contains("arrive") ? 1 : 0;
      if (entry->value(instruction.operands[3]) != entry->value(expect.operands[which]))
        note(instruction.line,
             llvm::formatv("{0}: the copy completes its bytes on {1}, expected the barrier where "
                           "line {2} expects them; to mend: give both the edge's barrier",
                           rule.mark.text(), instruction.operands[3], expect.line));
    }
  }

  void judgeOutside(const State &state, const Instruction &instruction) {
    const StringRef opcode = instruction.opcode;
    if (opcode.starts_with("griddepcontrol."))
      return;
    if (opcode.starts_with("mbarrier.init") || opcode.starts_with("fence.mbarrier_init")) {
      if (state.hasBegun)
        note(instruction.line,
             "'" + opcode.str() + "' after roles have begun; to mend: only in make_barriers<…>");
      return;
    }
    note(instruction.line, "'" + opcode.str() +
                               "' stands between no marks, so no edge of the role regions answers "
                               "for it; to mend: reach it through a device function that marks its "
                               "edge");
  }

  void judgeCall(const State &state, const Instruction &instruction, int place) {
    const Summary &called = summaries->of(instruction.callee);
    SmallVector<int64_t, 2> ids; // of the edges that a missed deadline would name
    for (int parameter : called.edgeParameters)
      if (int64_t id; !StringRef(entry->argument(place, parameter)).getAsInteger(10, id))
        ids.push_back(id);
    if (state.open < 0) {
      if (!called.strong.empty())
        note(instruction.line,
             llvm::formatv("a call of {0}{1}, which has '{2}', stands between no marks; to mend: "
                           "reach it through a device function that marks its edge",
                           instruction.callee, ids.empty() ? "" : nameOf(ids.front()),
                           called.strong.front()));
      return;
    }
    const Rule &rule = rules[state.open];
    for (const std::string &strong : called.strong)
      if (fitOf(rule, strong) == Fit::No)
        note(instruction.line,
             llvm::formatv("{0}: expected {1} but {2}, called here, has '{3}', whose order, scope "
                           "or width the table of memory orders does not give this edge; to mend: "
                           "the function that the verb calls (docs/memory-order.md)",
                           rule.mark.text(), wanted(rule), instruction.callee, strong));
    for (int64_t id : ids) {
      EdgeOp edge = rule.edge;
      auto isNamed = [&](EdgeOp other) { return id == int64_t(other.getId()); };
      if (!edge || isNamed(edge) || llvm::any_of(rule.also, isNamed))
        continue;
      note(instruction.line,
           llvm::formatv("{0}: a missed deadline would name edge {1}{2}, expected {3}; to mend: "
                         "hand on the edge's kId",
                         rule.mark.text(), id, nameOf(id), edge.getId()));
    }
  }

  /// " for @w_full", or nothing if no edge has that number.
  std::string nameOf(int64_t id) {
    if (kernel)
      for (EdgeOp edge : kernel.edges())
        if (int64_t(edge.getId()) == id)
          return " for @" + edge.getSymName().str();
    return "";
  }

  /// Each slot of each edge has a barrier of its arrivals, and nothing else is one.
  void checkInits() {
    std::map<int64_t, std::pair<EdgeOp, int64_t>> wantedAt; // offset -> edge, slot
    for (EdgeOp edge : kernel.edges())
      if (!edge.isGlobal() && edge.getOffset())
        for (int64_t slot = 0; slot < edge.getSlots(); ++slot)
          wantedAt[*edge.getOffset() + 8 * slot] = {edge, slot};
    for (const Instruction &instruction : entry->code) {
      if (!StringRef(instruction.opcode).starts_with("mbarrier.init"))
        continue;
      const std::string place =
          instruction.operands.size() == 2 ? entry->value(instruction.operands[0]) : "";
      int64_t offset = 0;
      StringRef rest = place;
      const bool isKnown =
          rest.consume_front("megalith_arena") &&
          (rest.empty() || (rest.consume_front("+") && !rest.getAsInteger(10, offset)));
      auto found = wantedAt.find(offset);
      if (!isKnown || found == wantedAt.end()) {
        note(instruction.line,
             "an mbarrier is initialised at " + place +
                 ", where no edge has one; to mend: make_barriers<…> of the kernel's "
                 "edges");
        continue;
      }
      auto [edge, slot] = found->second;
      const auto arrivals = entry->constant(instruction.operands[1]);
      if (arrivals != edge.getArrivals())
        note(instruction.line,
             llvm::formatv("@{0}, slot {1}: expected a barrier of {2} arrivals but got {3}; to "
                           "mend: MbarrierEdge of the edge's arrivals",
                           edge.getSymName(), slot, edge.getArrivals(),
                           arrivals ? std::to_string(*arrivals) : instruction.operands[1]));
      wantedAt.erase(found);
    }
    for (auto &[offset, missing] : wantedAt)
      note(0, llvm::formatv("@{0}, slot {1}: expected mbarrier.init at shared + {2} but got none; "
                            "to mend: name the edge in make_barriers<…>",
                            missing.first.getSymName(), missing.second, offset));
  }

  //===--------------------------------------------------------------------===//
  // The order of marks
  //===--------------------------------------------------------------------===//

  /// What a place does in the language of role regions; "" if nothing.
  std::string markAt(int place) const {
    const Instruction &instruction = entry->code[place];
    if (instruction.kind == Instruction::Begin)
      return instruction.mark.text();
    if (states[place].open >= 0)
      return "";
    return instruction.opcode == "griddepcontrol.wait"                ? kLaunchWait.str()
           : instruction.opcode == "griddepcontrol.launch_dependents" ? kLaunchDependents.str()
                                                                      : "";
  }

  /// The marks that come next behind `from`, and an end of the kernel if there is one.
  struct Follow {
    std::vector<int> marks;
    int end = -1;
  };
  const Follow &followOf(int from) {
    auto [it, isNew] = follows.try_emplace(from);
    if (!isNew)
      return it->second;
    std::vector<bool> seen(entry->code.size());
    std::vector<int> work;
    auto reach = [&](int place) {
      if (place < int(entry->code.size()) && !seen[place]) {
        seen[place] = true;
        work.push_back(place);
      }
    };
    if (from < 0)
      reach(0);
    else
      llvm::for_each(entry->next(from), reach);
    while (!work.empty()) {
      const int place = work.back();
      work.pop_back();
      if (!markAt(place).empty()) {
        it->second.marks.push_back(place);
        continue;
      }
      if (entry->code[place].kind == Instruction::Return)
        it->second.end = place;
      llvm::for_each(entry->next(place), reach);
    }
    return it->second;
  }

  void checkOrder() {
    const size_t before = findings.size();
    std::vector<bool> taken(regions->steps().size());
    std::set<std::pair<int, Regions::States>> seen;
    std::vector<std::pair<int, Regions::States>> work = {{-1, regions->begin()}};
    while (!work.empty()) {
      auto [place, allowed] = std::move(work.back());
      work.pop_back();
      const Follow &follow = followOf(place);
      auto behind = [&] {
        return place < 0 ? std::string("the kernel's beginning")
                         : "'" + markAt(place) + "' (line " + std::to_string(lineAt(place)) + ")";
      };
      if (place >= 0 && follow.end >= 0 && !regions->mayEnd(allowed))
        note(lineAt(follow.end),
             llvm::formatv("a warp may end behind {0}, where the role regions go on with {1}; to "
                           "mend: emit the role regions' steps, each in its place",
                           behind(), listed(regions->expected(allowed))));
      for (int next : follow.marks) {
        Regions::States there = regions->after(allowed, markAt(next), &taken);
        if (there.empty())
          note(lineAt(next),
               llvm::formatv("{0}: comes behind {1}, where the role regions have {2}; to mend: "
                             "emit the role regions' steps, each in its place",
                             markAt(next), behind(), listed(regions->expected(allowed))));
        else if (seen.insert({next, there}).second)
          work.push_back({next, std::move(there)});
      }
    }
    if (findings.size() > before)
      return; // what comes behind was not walked
    for (auto [step, wasTaken] : llvm::zip_equal(regions->steps(), taken))
      // A pace with nothing to wait for, as the compiler sees, leaves nothing.
      if (!wasTaken && !step.isAgain && !isa<PaceOp>(step.op)) {
        auto stage = step.op->getParentOfType<StageOp>();
        note(0, llvm::formatv("{0}: the {1} of stage @{2} has a {3} that stands nowhere in the "
                              "PTX; to mend: emit it through a device function that marks its edge",
                              step.mark, stringifyRole(step.role), stage.getSymName(),
                              step.op->getName()));
      }
  }

  static std::string listed(ArrayRef<std::string> marks) {
    if (marks.empty())
      return "nothing more";
    std::string text;
    for (size_t i = 0; i < marks.size() && i < 4; ++i)
      text += (i == 0 ? "'" : " or '") + marks[i] + "'";
    return text + (marks.size() > 4 ? " or others" : "");
  }

  KernelOp kernel;
  std::string name;
  std::vector<Function> functions;
  Function whole; ///< the entry, with marks of what it calls
  const Function *entry = nullptr;
  Summaries *summaries = nullptr;
  std::unique_ptr<Regions> regions;
  std::vector<Rule> rules;
  std::map<std::string, int> ruleByText;
  std::vector<int> ruleOf; ///< by place of a mark
  std::vector<State> states;
  std::map<int, Follow> follows;
  std::vector<Finding> findings;
};

} // namespace

std::vector<Finding> lint(KernelOp kernel, StringRef ptx) {
  return Linter(kernel, kernel.getSymName()).run(ptx);
}

std::vector<Finding> lintAlone(StringRef name, StringRef ptx) {
  return Linter(KernelOp(), name).run(ptx);
}

} // namespace megalith::lint
