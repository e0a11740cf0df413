#include "passes/verify/Words.h"

using namespace mlir;
using namespace megalith;
using namespace megalith::task;
using namespace megalith::verify;

bool Words::publishes(const Access &access) const {
  return access.isWrite && !access.isShared &&
         program.globals[access.decl].kind == Global::Exchange;
}

Words::Words(const Program &program, ArrayRef<const Summary *> runs, Faults &faults)
    : program(program), faults(faults),
      exchanges(program.ranks * program.launches.size() * program.globals.size()),
      launches(program.launches.size()) {
  for (int64_t rank = 0; rank < program.ranks; ++rank)
    for (const Summary *run : runs) {
      for (int role = 0; role < kRoles; ++role)
        threads.push_back({.sm = static_cast<int64_t>(sms.size()), .role = role});
      sms.push_back({run});
    }
  for (const auto &code : program.code)
    for (const Instr &instr : code)
      for (const Access &access : program.accessesOf(instr))
        for (int64_t rank = 0; publishes(access) && rank < program.ranks; ++rank) {
          Exchange &exchange = exchangeOf(rank, instr.launch, access.decl);
          exchange.hasPublisher = true;
          exchange.isTabled |= access.table >= 0;
        }
  for (Thread &thread : threads) {
    queue.push_back(&thread);
    for (const Event &event : eventsOf(thread))
      if (const Instr &instr = program.code[thread.role][event.instr]; !event.isPoll)
        for (const Access &access : program.accessesOf(instr))
          if (publishes(access))
            ++exchangeOf(rankOf(thread), instr.launch, access.decl).publicationsLeft;
  }
}

bool Words::isDone(int64_t sm) const {
  return llvm::all_of(llvm::ArrayRef(threads).slice(sm * kRoles, kRoles),
                      [&](const Thread &thread) { return thread.next == eventsOf(thread).size(); });
}

void Words::enqueue(Thread &thread) {
  if (thread.isQueued)
    return;
  thread.isQueued = true;
  queue.push_back(&thread);
}

// First come, first served: publishers run before those that wait for them look again.
bool Words::run() {
  while (!queue.empty()) {
    Thread &thread = *queue.front();
    queue.pop_front();
    thread.isQueued = false;
    while (thread.next < eventsOf(thread).size() && advance(thread))
      ++thread.next;
  }
  return llvm::all_of(llvm::seq<int64_t>(0, sms.size()), [&](int64_t sm) { return isDone(sm); });
}

// The thread's next event; false if it must wait, and is woken for what it waits for.
bool Words::advance(Thread &thread) {
  const Event &event = eventsOf(thread)[thread.next];
  Sm &sm = sms[thread.sm];
  for (int role = 0; role < kRoles; ++role)
    if (role != thread.role && event.after[role] > sm.passed[role])
      return false; // that role's polls wake it
  const Instr &instr = program.code[thread.role][event.instr];
  dims.assign(1, thread.sm % program.sms);
  llvm::append_range(dims, ArrayRef(sm.run->dims).slice(event.dims, instr.depth - 1));
  if (instr.kind == Instr::LaunchDone) {
    endLaunch(instr);
    return true;
  }
  if (!event.isPoll) {
    publish(thread, instr, dims.data());
    return true;
  }
  const bool isLaunch = instr.kind == Instr::LaunchWait;
  if (isLaunch ? !awaitLaunch(thread, instr) : !poll(thread, instr, dims.data()))
    return false;
  ++sm.passed[thread.role];
  for (int role = 0; role < kRoles; ++role)
    if (role != thread.role)
      enqueue(threads[thread.sm * kRoles + role]);
  return true;
}

bool Words::awaitLaunch(Thread &thread, const Instr &instr) {
  Launch &before = launches[instr.launch - 1];
  if (before.done == static_cast<int64_t>(sms.size()))
    return true;
  before.waiting.push_back(&thread);
  return false;
}

// An SM says so once: Local.h.
void Words::endLaunch(const Instr &instr) {
  Launch &launch = launches[instr.launch];
  if (++launch.done < static_cast<int64_t>(sms.size()))
    return;
  for (Thread *thread : launch.waiting)
    enqueue(*thread);
  launch.waiting.clear();
}

bool Words::isInside(const Thread &thread, const Instr &instr, const Access &access,
                     const Rect &rect) {
  const Global &global = program.globals[access.decl];
  if (rect.fits(global.rows, global.cols))
    return true;
  faults.at(instr.op, thread.sm % program.sms)
      << "touches " << access.attr.getBuffer() << ' ' << describe(rect) << ", outside its "
      << global.rows << " x " << global.cols << "; expected a place inside";
  return false;
}

// A word is stored at once: two roles that each own some of its values would store over each other.
void Words::checkWholeWords(const Thread &thread, const Instr &instr, const Access &access,
                            const Rect &rect) {
  const Global &global = program.globals[access.decl];
  auto exchange = cast<ExchangeOp>(global.op);
  const int64_t unit = exchange.hasTriples() ? 3 : exchange.getElement().isBF16() ? 2 : 1;
  if (rect.col % unit == 0 && (rect.colEnd() % unit == 0 || rect.colEnd() == global.cols))
    return;
  faults.at(instr.op, thread.sm % program.sms)
      << "publishes " << access.attr.getBuffer() << ' ' << describe(rect)
      << ", which begin or end inside a word; expected columns in multiples of " << unit
      << ", which a word holds and is stored with";
}

bool Words::poll(Thread &thread, const Instr &instr, const int64_t *dims) {
  for (const Access &access : program.accessesOf(instr)) {
    if (access.isWrite || access.isShared ||
        program.globals[access.decl].kind != Global::Exchange) // constants that the words meet
      continue;
    if (!program.isOwn(access, instr))
      continue; // of the launch before the kernel
    const Rect rect = placeOf(thread, access, dims);
    if (!isInside(thread, instr, access, rect))
      continue; // its words never come
    const int publisher = program.publisherOf(access, instr);
    Exchange &exchange = exchangeOf(rankOf(thread), publisher, access.decl);
    // Rows by their own numbers of words that are published behind a table: it alone says whose
    // they are.
    const bool isAnybodys = access.table < 0 && exchange.isTabled;
    if (!isAnybodys && (access.table < 0 || access.axiom == Axiom::Uniform)) {
      const Planes::Key key = Planes::keyOf(access, dims);
      const RectSet &words = exchange.words.at(key);
      if (!rect.empty() && !words.contains(rect)) {
        exchange.waiting[{key, *words.firstMissing(rect)}].push_back(&thread);
        return false;
      }
    } else if (exchange.publicationsLeft > 0 || !exchange.hasPublisher) {
      // As rows behind a partition table are, by whoever its axiom says: wait for all.
      exchange.waitingForAll.push_back(&thread);
      return false;
    }
    exchange.isPolled |= publisher == instr.launch;
    if (program.globals[access.decl].isNumbers) {
      exchange.heard.resize(program.ranks);
      exchange.heard[rankOf(thread)].add(rect);
    }
    if (!rect.empty())
      exchange.polled.add(Planes::keyOf(access, dims), rect);
  }
  return true;
}

// Among what was played so far: for a message.
const Event *Words::firstPublisher(const Planes::Key &key, const Access &access, const Rect &rect,
                                   int launch, const Thread *&by) {
  SmallVector<int64_t, 8> at;
  for (const Thread &thread : threads)
    for (const Event &event : ArrayRef(eventsOf(thread)).take_front(thread.next)) {
      const Instr &instr = program.code[thread.role][event.instr];
      if (event.isPoll || instr.launch != launch)
        continue;
      at.assign(1, thread.sm % program.sms);
      llvm::append_range(at, ArrayRef(sms[thread.sm].run->dims).slice(event.dims, instr.depth - 1));
      for (const Access &other : program.accessesOf(instr)) {
        const Planes::Key otherKey = Planes::keyOf(other, at.data());
        if (!publishes(other) || other.decl != access.decl || otherKey < key || key < otherKey ||
            !placeOf(thread, other, at.data()).overlaps(rect))
          continue;
        by = &thread;
        return &event;
      }
    }
  return nullptr;
}

void Words::publish(Thread &thread, const Instr &instr, const int64_t *dims) {
  for (const Access &access : program.accessesOf(instr)) {
    if (!publishes(access))
      continue;
    Exchange &exchange = exchangeOf(rankOf(thread), instr.launch, access.decl);
    exchange.isPublished = true;
    exchange.isScattered |= access.table >= 0 && access.axiom != Axiom::Uniform;
    if (--exchange.publicationsLeft == 0) {
      for (Thread *waiting : exchange.waitingForAll)
        enqueue(*waiting);
      exchange.waitingForAll.clear();
    }
    const Rect rect = placeOf(thread, access, dims);
    if (rect.empty() || !isInside(thread, instr, access, rect))
      continue;
    checkWholeWords(thread, instr, access, rect);
    const Planes::Key key = Planes::keyOf(access, dims);
    if (!exchange.words.add(key, rect)) {
      InFlightDiagnostic fault = faults.at(instr.op, thread.sm % program.sms);
      fault << "the " << nameOfTask(instr.op) << " publishes words of " << access.attr.getBuffer()
            << ' ' << describe(rect)
            << " that were published before in this launch; expected places that lie apart";
      const Thread *by = nullptr;
      if (const Event *first = firstPublisher(key, access, rect, instr.launch, by)) {
        Operation *op = program.code[by->role][first->instr].op;
        fault.attachNote(op->getLoc())
            << "the " << nameOfTask(op) << " on SM " << by->sm % program.sms << " was the first";
      }
    }
    wake(exchange, key, rect);
  }
}

// Those that wait for a word of the rectangle look again.
void Words::wake(Exchange &exchange, const Planes::Key &key, const Rect &rect) {
  auto &waiting = exchange.waiting;
  auto it = waiting.lower_bound({key, {rect.row, rect.col}});
  while (it != waiting.end()) {
    const auto &[plane, place] = it->first;
    if (key < plane || place.first >= rect.rowEnd())
      return;
    if (place.second < rect.col) {
      it = waiting.lower_bound({key, {place.first, rect.col}});
    } else if (place.second >= rect.colEnd()) {
      it = waiting.lower_bound({key, {place.first + 1, rect.col}});
    } else {
      for (Thread *thread : it->second)
        enqueue(*thread);
      it = waiting.erase(it);
    }
  }
}

// All ranks run the same, so what one has of its own the others have too.
void Words::checkEnds() {
  for (size_t launch = 0; launch < launches.size(); ++launch)
    for (auto [index, global] : llvm::enumerate(program.globals)) {
      const Exchange &exchange = exchangeOf(/*rank=*/0, launch, index);
      auto op = dyn_cast<ExchangeOp>(global.op);
      if (op && global.isNumbers)
        checkHeard(exchange, global);
      if (!op || !exchange.isPublished)
        continue;
      auto tell = [&](const Twine &text, const Twine &mend, bool isWrite, StringRef verb) {
        InFlightDiagnostic fault = faults.among(op);
        fault << text << program.inLaunch(launch) << "; expected " << mend;
        Operation *step = program.userOf(index, isWrite, launch);
        if (step)
          fault.attachNote(step->getLoc()) << "the " << nameOfTask(step) << verb;
      };
      auto missing = exchange.words.firstMissing(global.rows, global.cols, /*areMatrices=*/false);
      if (exchange.words.empty())
        missing = Planes::Place{};
      if (missing)
        tell("has words that no role publishes, the first at " + Planes::describe(*missing),
             "each exactly once: a task.compute whose writes cover it", /*isWrite=*/true,
             " publishes others here");
      if (std::optional<Planes::Key> gap = exchange.words.firstGap())
        tell("is published for argument " + Twine(gap->argument) +
                 " of its table but not for the one before",
             "arguments to count from 0", /*isWrite=*/true, " publishes it here");
      if (!op.isSelfValidating() || op.isCrossing()) // later launches read it
        continue;
      if (!exchange.isPolled) {
        tell("is published but never polled",
             "a task.poll of it in this launch, or a value that nobody needs to be left out",
             /*isWrite=*/true, " publishes it here");
        continue;
      }
      // Which rows other SMs name by such a table is not known here, but that they want whole ones.
      const bool areAllRead = exchange.isTabled && !exchange.isScattered &&
                              exchange.polled.at({}).contains({0, global.rows, 0, global.cols});
      auto unread = exchange.isScattered ? exchange.polled.firstMissing(global.rows, global.cols,
                                                                        /*areMatrices=*/false)
                                         : exchange.polled.firstMissing(exchange.words);
      if (!global.isNumbers && !areAllRead && unread)
        tell("has words that are published but never polled, the first at " +
                 Planes::describe(*unread),
             "some SM to read each: a task.poll whose reads cover it", /*isWrite=*/false,
             " polls others here");
    }
}
