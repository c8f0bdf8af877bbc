#include "backends/sim/timeline.h"

#include <algorithm>

namespace epl::sim {

using Kind = Timeline::Item::Kind;

void Simulation::advance(const TimelinePtr& timeline, double seconds) {
  // Most commands follow each other: they are merged into one item of the queue.
  if (timeline->queue.empty()) {
    timeline->seconds += seconds;
  } else if (timeline->queue.back().kind == Kind::advance) {
    timeline->queue.back().seconds += seconds;
  } else {
    timeline->queue.push_back({.kind = Kind::advance, .seconds = seconds});
  }
}
void Simulation::record(const TimelinePtr& timeline, std::shared_ptr<Point> point) {
  add(timeline, {.kind = Kind::record, .point = std::move(point)});
}
void Simulation::wait(const TimelinePtr& timeline, std::shared_ptr<Point> point) {
  add(timeline, {.kind = Kind::wait, .point = std::move(point)});
}
void Simulation::join(const TimelinePtr& timeline, std::shared_ptr<CollectiveCall> collective) {
  add(timeline, {.kind = Kind::join, .collective = std::move(collective)});
}

void Simulation::stamp(const TimelinePtr& timeline, double* into) {
  add(timeline, {.kind = Kind::stamp, .into = into});
}

void Simulation::fail(CollectiveCall& collective, const Status& status) {
  if (collective.over) return;
  collective.over = true;
  collective.failure = status;
  wake(collective.waiting);
  work();
}

void Simulation::add(const TimelinePtr& timeline, Timeline::Item item) {
  timeline->queue.push_back(std::move(item));
  if (timeline->queue.size() > 1) return;  // it waits for something else
  ready_.push_back(timeline);
  work();
}

void Simulation::work() {
  while (!ready_.empty()) {
    TimelinePtr timeline = std::move(ready_.back());
    ready_.pop_back();
    while (!timeline->queue.empty() && step(timeline, timeline->queue.front())) timeline->queue.pop_front();
  }
}

// Processes one item; false if the timeline has to wait, and is registered to be woken.
bool Simulation::step(const TimelinePtr& timeline, Timeline::Item& item) {
  switch (item.kind) {
    case Kind::advance:
      timeline->seconds += item.seconds;
      return true;
    case Kind::record:
      item.point->reached = true;
      item.point->seconds = timeline->seconds;
      wake(item.point->waiting);
      return true;
    case Kind::stamp:
      *item.into = timeline->seconds;
      return true;
    case Kind::wait:
      if (!item.point->reached) {
        item.point->waiting.push_back(timeline);
        return false;
      }
      timeline->seconds = std::max(timeline->seconds, item.point->seconds);
      return true;
    case Kind::join: {
      CollectiveCall& collective = *item.collective;
      if (!item.arrived && !collective.over) {
        item.arrived = true;
        collective.seconds = std::max(collective.seconds, timeline->seconds);
        if (++collective.arrived == collective.ranks) {
          collective.over = true;
          collective.seconds += collective.cost;
          wake(collective.waiting);
        }
      }
      if (!collective.over) {
        collective.waiting.push_back(timeline);
        return false;
      }
      if (collective.failure.ok()) {
        timeline->seconds = collective.seconds;
      } else if (timeline->status.ok()) {
        timeline->status = collective.failure;
      }
      return true;
    }
  }
  return true;
}

void Simulation::wake(std::vector<TimelinePtr>& waiting) {
  ready_.insert(ready_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

}  // namespace epl::sim
