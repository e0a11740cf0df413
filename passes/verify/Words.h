// Words of exchanges over all SMs: in every launch every poll finds its words, every word is
// published once; and SMs that wait for each other between the launches of a looping kernel.
#pragma once

#include "passes/verify/Faults.h"
#include "passes/verify/Local.h"
#include "passes/verify/Planes.h"

#include <deque>
#include <map>

namespace megalith::verify {

/// Plays the polls and publications of every SM, in the order that its run left them in.
class Words {
public:
  /// `runs`: by SM of a rank; all ranks run the same.
  Words(const Program &program, llvm::ArrayRef<const Summary *> runs, Faults &faults);

  /// Whether every poll passes. Reports words that are published twice or lie outside.
  bool run();
  /// After a run: the polls of an SM that passed, by role.
  const Clock &passed(int64_t sm) const { return sms[sm].passed; }
  bool isDone(int64_t sm) const;
  /// Reports exchanges with words that nobody publishes, or that nobody polls.
  void checkEnds();

private:
  /// One role of one SM. SMs are counted through all ranks.
  struct Thread {
    int64_t sm;
    int role;
    size_t next = 0;
    bool isQueued = true;
  };
  struct Sm {
    const Summary *run;
    Clock passed{};
  };
  struct Exchange {
    Planes words, polled;
    std::vector<RectSet> heard; ///< of numbers of ranks, by rank: what its SMs have polled
    int64_t publicationsLeft = 0;
    bool hasPublisher = false; ///< a step that publishes, be it never in this case
    bool isPublished = false, isPolled = false;
    bool isScattered = false; ///< rows are named by a table that is not uniform
    bool isTabled = false; ///< a step publishes rows that a table names, be it never in this case
    /// Threads that wait for a word, by (plane, row, column), and for every publication.
    std::map<std::pair<Planes::Key, std::pair<int64_t, int64_t>>, std::vector<Thread *>> waiting;
    std::vector<Thread *> waitingForAll;
  };

  const std::vector<Event> &eventsOf(const Thread &thread) const {
    return sms[thread.sm].run->events[thread.role];
  }
  bool advance(Thread &thread);
  bool poll(Thread &thread, const Instr &instr, const int64_t *dims);
  const Event *firstPublisher(const Planes::Key &key, const Access &access, const Rect &rect,
                              int launch, const Thread *&by);
  void publish(Thread &thread, const Instr &instr, const int64_t *dims);
  bool awaitLaunch(Thread &thread, const Instr &instr);
  void endLaunch(const Instr &instr);
  bool publishes(const Access &access) const;
  int64_t rankOf(const Thread &thread) const { return thread.sm / program.sms; }
  /// Replicas of an exchange of ranks are one: a word is stored to all. Others are a rank's own.
  Exchange &exchangeOf(int64_t rank, int launch, int global) {
    const size_t states = program.launches.size() * program.globals.size();
    const int64_t replica = program.globals[global].isOfRanks ? 0 : rank;
    return exchanges[replica * states + program.stateOf(launch, global)];
  }
  Rect placeOf(const Thread &thread, const Access &access, const int64_t *dims) const {
    return access.at(dims, rankOf(thread), program.globals[access.decl].share);
  }
  void checkHeard(const Exchange &exchange, const Global &global);
  bool isInside(const Thread &thread, const Instr &instr, const Access &access, const Rect &rect);
  void checkWholeWords(const Thread &thread, const Instr &instr, const Access &access,
                       const Rect &rect);
  void wake(Exchange &exchange, const Planes::Key &key, const Rect &rect);
  void enqueue(Thread &thread);

  const Program &program;
  Faults &faults;
  std::vector<Sm> sms;
  std::vector<Thread> threads;     ///< kRoles an SM
  std::vector<Exchange> exchanges; ///< by launch and global; those of other kinds stay empty
  struct Launch {
    int64_t done = 0; ///< SMs that are over with it
    std::vector<Thread *> waiting;
  };
  std::vector<Launch> launches;
  std::deque<Thread *> queue;
  llvm::SmallVector<int64_t, 8> dims; ///< of the event at hand
};

} // namespace megalith::verify
