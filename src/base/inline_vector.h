// A vector whose first N elements live inside it: shapes and argument lists without heap traffic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace torch_tpu {

/// Holds trivially copyable elements; spills to the heap past N. Not thread-safe, as std::vector.
template <typename T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  InlineVector() = default;
  explicit InlineVector(size_t count, T value = T()) { resize(count, value); }
  InlineVector(std::initializer_list<T> values) : InlineVector(values.begin(), values.end()) {}
  InlineVector(std::span<const T> values) : InlineVector(values.begin(), values.end()) {}
  InlineVector(const std::vector<T>& values) : InlineVector(values.begin(), values.end()) {}
  template <typename Iterator>
    requires(!std::is_integral_v<Iterator>)
  InlineVector(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  InlineVector(const InlineVector& other) { *this = other; }
  InlineVector(InlineVector&& other) noexcept { *this = std::move(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) {
      size_ = 0;
      reserve(other.size_);
      std::copy(other.begin(), other.end(), data());
      size_ = other.size_;
    }
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      heap_ = std::move(other.heap_);
      capacity_ = other.capacity_;
      size_ = other.size_;
      if (!heap_) std::copy(other.inline_, other.inline_ + size_, inline_);
      other.size_ = 0;
      other.capacity_ = N;
    }
    return *this;
  }

  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  void clear() { size_ = 0; }
  void pop_back() { --size_; }
  void push_back(T value) {
    if (size_ == capacity_) reserve(capacity_ * 2);
    data()[size_++] = value;
  }
  void resize(size_t count, T value = T()) {
    reserve(count);
    for (size_t i = size_; i < count; ++i) data()[i] = value;
    size_ = count;
  }
  void reserve(size_t count) {
    if (count <= capacity_) return;
    std::unique_ptr<T[]> grown(new T[count]);
    std::copy(begin(), end(), grown.get());
    heap_ = std::move(grown);
    capacity_ = count;
  }
  void insert(size_t position, T value) {
    push_back(value);
    std::rotate(begin() + position, end() - 1, end());
  }
  void erase(size_t position) {
    std::copy(begin() + position + 1, end(), begin() + position);
    --size_;
  }
  operator std::span<const T>() const { return {data(), size_}; }
  bool operator==(const InlineVector& other) const {
    return size_ == other.size_ && std::equal(begin(), end(), other.begin());
  }

 private:
  T inline_[N];
  std::unique_ptr<T[]> heap_;
  size_t size_ = 0;
  size_t capacity_ = N;
};

}  // namespace torch_tpu
