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
void Simulation::meet(const TimelinePtr& timeline, std::shared_ptr<Meeting> meeting) {
  add(timeline, {.kind = Kind::meet, .meeting = std::move(meeting)});
}

void Simulation::stamp(const TimelinePtr& timeline, double* into) {
  add(timeline, {.kind = Kind::stamp, .into = into});
}

void Simulation::fail(Meeting& meeting, const Status& status) {
  if (meeting.over) return;
  meeting.over = true;
  meeting.failure = status;
  wake(meeting.waiting);
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
    case Kind::meet: {
      Meeting& meeting = *item.meeting;
      if (!item.arrived && !meeting.over) {
        item.arrived = true;
        meeting.seconds = std::max(meeting.seconds, timeline->seconds);
        if (++meeting.arrived == meeting.ranks) {
          meeting.over = true;
          meeting.seconds += meeting.cost;
          wake(meeting.waiting);
        }
      }
      if (!meeting.over) {
        meeting.waiting.push_back(timeline);
        return false;
      }
      if (meeting.failure.ok()) {
        timeline->seconds = meeting.seconds;
      } else if (timeline->status.ok()) {
        timeline->status = meeting.failure;
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
