// Ids of the values and nodes of a graph, ranges of ids, and tables that are indexed by nothing else.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace epl {

struct Value {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
  friend bool operator==(Value, Value) = default;
  friend auto operator<=>(Value, Value) = default;
};
struct NodeId {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
  friend bool operator==(NodeId, NodeId) = default;
  friend auto operator<=>(NodeId, NodeId) = default;
};

// Ids from `first` to before `end`.
template <class Id> class IdRange {
 public:
  class Iterator {
   public:
    using value_type = Id;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(int32_t at, int32_t step) : at_(at), step_(step) {}
    Id operator*() const { return Id{at_}; }
    Iterator& operator++() {
      at_ += step_;
      return *this;
    }
    Iterator operator++(int) { return std::exchange(*this, Iterator(at_ + step_, step_)); }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    int32_t at_ = 0, step_ = 1;
  };

  IdRange(int32_t first, int32_t end, int32_t step = 1) : first_(first), end_(end), step_(step) {}
  Iterator begin() const { return {first_, step_}; }
  Iterator end() const { return {end_, step_}; }
  IdRange reversed() const { return {end_ - step_, first_ - step_, -step_}; }
  IdRange after(Id id) const { return {id.index + step_, end_, step_}; }

 private:
  int32_t first_, end_, step_;
};

// An element for each id. Iteration goes over the elements, in the order of ids.
template <class Id, class T> class By {
  // Not T&: elements of a vector of truth values are bits.
  using Reference = typename std::vector<T>::reference;
  using ConstReference = typename std::vector<T>::const_reference;

 public:
  By() = default;
  explicit By(int count, const T& element = T()) : all_(count, element) {}
  By(std::initializer_list<T> elements) : all_(elements) {}

  Reference operator[](Id id) { return all_[id.index]; }
  ConstReference operator[](Id id) const { return all_[id.index]; }
  Reference back() { return all_.back(); }
  ConstReference back() const { return all_.back(); }
  auto begin() { return all_.begin(); }
  auto begin() const { return all_.begin(); }
  auto end() { return all_.end(); }
  auto end() const { return all_.end(); }
  IdRange<Id> ids() const { return {0, size()}; }

  int size() const { return static_cast<int>(all_.size()); }
  bool empty() const { return all_.empty(); }
  void clear() { all_.clear(); }
  void assign(int count, const T& element) { all_.assign(count, element); }
  void resize(int count, const T& element = T()) { all_.resize(count, element); }
  void push_back(T element) { all_.push_back(std::move(element)); }
  Reference emplace_back() { return all_.emplace_back(); }
  friend bool operator==(const By&, const By&) = default;

 private:
  std::vector<T> all_;
};
template <class T> using ByValue = By<Value, T>;
template <class T> using ByNode = By<NodeId, T>;

}  // namespace epl
