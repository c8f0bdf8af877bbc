// Virtual time: streams are queues of work that takes time, with the points at which they wait for each other.
//
// Commands are queued and processed as far as possible. A queue stops before an event that is not recorded yet, and
// before a collective call to which not all ranks have arrived. The call that brings the missing part lets it go
// on. So no caller ever blocks, ranks may be driven in any order, and the times do not depend on that order.
//
// Thread safety: all calls may run together; one lock per simulation.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/status.h"

namespace epl::sim {

struct Timeline;
using TimelinePtr = std::shared_ptr<Timeline>;

// One record of an event.
struct Point {
  bool reached = false;
  double seconds = 0;
  std::vector<TimelinePtr> waiting;
};

// One call of a group.
struct CollectiveCall {
  int ranks = 0;
  double cost = 0;
  int arrived = 0;  // ranks whose time has reached it
  bool over = false;
  double seconds = 0;  // the latest arrival; when it is over, the end
  Status failure;
  std::vector<TimelinePtr> waiting;
};

struct Timeline {
  struct Item {
    enum class Kind { advance, record, wait, join, stamp } kind;
    double seconds = 0;
    double* into = nullptr;  // of a stamp
    std::shared_ptr<Point> point;
    std::shared_ptr<CollectiveCall> collective;
    bool arrived = false;
  };
  double seconds = 0;
  std::deque<Item> queue;
  Status status;  // of the first collective call that failed
};

class Simulation {
 public:
  std::mutex mutex;  // held by the caller of what follows

  void advance(const TimelinePtr& timeline, double seconds);
  void record(const TimelinePtr& timeline, std::shared_ptr<Point> point);
  void wait(const TimelinePtr& timeline, std::shared_ptr<Point> point);
  void join(const TimelinePtr& timeline, std::shared_ptr<CollectiveCall> collective);
  void stamp(const TimelinePtr& timeline, double* into);  // writes the time at which the queue comes here
  // Ends a collective call that will not take place: waiting ranks go on without time passing, with the failure as
  // status.
  void fail(CollectiveCall& collective, const Status& status);

 private:
  void add(const TimelinePtr& timeline, Timeline::Item item);
  void work();
  bool step(const TimelinePtr& timeline, Timeline::Item& item);
  void wake(std::vector<TimelinePtr>& waiting);

  std::vector<TimelinePtr> ready_;
};

}  // namespace epl::sim
