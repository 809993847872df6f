// Test and wait on symmetric variables, in all seven forms (OpenSHMEM 1.5, 9.9). Loads acquire.
//
// Waits take a `pause` that is called between looks and returns false to give up (time-out, lost peer); the wait then
// returns false, or the value said below.
#pragma once

#include "device/access.h"

namespace heddle::device {

constexpr size_t kNone = static_cast<size_t>(-1);  // SIZE_MAX: no index

/// `value` compared with `reference` as NVSHMEM_CMP_* (0 EQ, 1 NE, 2 GT, 3 LE, 4 LT, 5 GE).
template <class T>
HEDDLE_HD HEDDLE_INLINE bool compare(T value, int cmp, T reference) {
  switch (cmp) {
    case 0:
      return value == reference;
    case 1:
      return value != reference;
    case 2:
      return value > reference;
    case 3:
      return value <= reference;
    case 4:
      return value < reference;
    default:
      return value >= reference;
  }
}

/// References of the plain forms (one value for all) and of the vector forms (one each).
template <class T>
struct OneValue {
  T value;
  HEDDLE_HD T operator[](size_t) const { return value; }
};

template <class T>
HEDDLE_HD HEDDLE_INLINE bool test(const T* variable, int cmp, T reference) {
  return compare(load_acquire(variable), cmp, reference);
}

HEDDLE_HD HEDDLE_INLINE bool counts(const int* status, size_t i) { return status == nullptr || status[i] == 0; }

/// True when every variable whose status is 0 satisfies the comparison; true for an empty set.
template <class T, class References>
HEDDLE_HD bool test_all(const T* variables, size_t count, const int* status, int cmp, References references) {
  for (size_t i = 0; i < count; ++i) {
    if (counts(status, i) && !test(variables + i, cmp, static_cast<T>(references[i]))) return false;
  }
  return true;
}

/// Index of one variable that satisfies the comparison, looking from `first` on and around; kNone when none does.
template <class T, class References>
HEDDLE_HD size_t test_any(const T* variables, size_t count, const int* status, int cmp, References references,
                          size_t first = 0) {
  for (size_t step = 0; step < count; ++step) {
    const size_t i = first + step < count ? first + step : first + step - count;
    if (counts(status, i) && test(variables + i, cmp, static_cast<T>(references[i]))) return i;
  }
  return kNone;
}

/// Writes the indices of all variables that satisfy the comparison; how many.
template <class T, class References>
HEDDLE_HD size_t test_some(const T* variables, size_t count, size_t* indices, const int* status, int cmp,
                           References references) {
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    if (counts(status, i) && test(variables + i, cmp, static_cast<T>(references[i]))) indices[found++] = i;
  }
  return found;
}

HEDDLE_HD inline bool empty_set(size_t count, const int* status) {
  for (size_t i = 0; i < count; ++i) {
    if (counts(status, i)) return false;
  }
  return true;
}

template <class T, class Pause>
HEDDLE_HD bool wait_until(const T* variable, int cmp, T reference, Pause&& pause) {
  while (!test(variable, cmp, reference)) {
    if (!pause()) return false;
  }
  return true;
}

/// Waits for each in turn: later ones are mostly there by then.
template <class T, class References, class Pause>
HEDDLE_HD bool wait_until_all(const T* variables, size_t count, const int* status, int cmp, References references,
                              Pause&& pause) {
  for (size_t i = 0; i < count; ++i) {
    if (counts(status, i) && !wait_until(variables + i, cmp, static_cast<T>(references[i]), pause)) return false;
  }
  return true;
}

/// kNone at once for an empty set, and when given up.
template <class T, class References, class Pause>
HEDDLE_HD size_t wait_until_any(const T* variables, size_t count, const int* status, int cmp, References references,
                                Pause&& pause) {
  if (empty_set(count, status)) return kNone;
  while (true) {
    const size_t index = test_any(variables, count, status, cmp, references);
    if (index != kNone || !pause()) return index;
  }
}

/// 0 at once for an empty set, and when given up.
template <class T, class References, class Pause>
HEDDLE_HD size_t wait_until_some(const T* variables, size_t count, size_t* indices, const int* status, int cmp,
                                 References references, Pause&& pause) {
  if (empty_set(count, status)) return 0;
  while (true) {
    const size_t found = test_some(variables, count, indices, status, cmp, references);
    if (found != 0 || !pause()) return found;
  }
}

}  // namespace heddle::device
