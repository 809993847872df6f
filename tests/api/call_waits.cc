// The wait and test names of every type, in all seven forms; part of call_every_name.
#include <cstdint>

#include "../multi/check.h"

namespace {

template <class T>
struct WaitCalls {
  void (*wait)(T*, int, T);
  void (*wait_all)(T*, size_t, const int*, int, T);
  size_t (*wait_any)(T*, size_t, const int*, int, T);
  size_t (*wait_some)(T*, size_t, size_t*, const int*, int, T);
  void (*wait_all_vector)(T*, size_t, const int*, int, T*);
  size_t (*wait_any_vector)(T*, size_t, const int*, int, T*);
  size_t (*wait_some_vector)(T*, size_t, size_t*, const int*, int, T*);
  int (*test)(T*, int, T);
  int (*test_all)(T*, size_t, const int*, int, T);
  size_t (*test_any)(T*, size_t, const int*, int, T);
  size_t (*test_some)(T*, size_t, size_t*, const int*, int, T);
  int (*test_all_vector)(T*, size_t, const int*, int, T*);
  size_t (*test_any_vector)(T*, size_t, const int*, int, T*);
  size_t (*test_some_vector)(T*, size_t, size_t*, const int*, int, T*);
  void (*p)(T*, T, int);
};

constexpr size_t kVars = 6;

template <class T>
void test_comparisons(const std::string& name, const WaitCalls<T>& calls, T* vars) {
  // Rows: NVSHMEM_CMP_EQ, NE, GT, LE, LT, GE; columns: the variable is less, equal, greater.
  constexpr int kTruth[6][3] = {{0, 1, 0}, {1, 0, 1}, {0, 0, 1}, {1, 1, 0}, {1, 0, 0}, {0, 1, 1}};
  bool good = true;
  for (int cmp = 0; cmp < 6; ++cmp) {
    for (int column = 0; column < 3; ++column) {
      vars[0] = static_cast<T>(4 + column);
      good = good && calls.test(vars, cmp, T{5}) == kTruth[cmp][column];
    }
  }
  check::that(good, name + " test, all comparisons");
  // The top bit counts as the type says.
  vars[0] = static_cast<T>(-1);
  check::that(calls.test(vars, NVSHMEM_CMP_GT, T{1}) == (static_cast<T>(-1) > T{1} ? 1 : 0),
              name + " test, signedness");
  vars[0] = 0;
}

template <class T>
void test_empty_sets(const std::string& name, const WaitCalls<T>& calls, T* vars, T* values) {
  const int all_out[kVars] = {1, 1, 1, 1, 1, 1};
  size_t indices[kVars];
  const int eq = NVSHMEM_CMP_EQ;
  calls.wait_all(vars, kVars, all_out, eq, T{77});
  calls.wait_all(vars, 0, nullptr, eq, T{77});
  calls.wait_all_vector(vars, kVars, all_out, eq, values);
  check::that(calls.wait_any(vars, kVars, all_out, eq, T{77}) == SIZE_MAX &&
                  calls.wait_any_vector(vars, 0, nullptr, eq, values) == SIZE_MAX &&
                  calls.wait_some(vars, kVars, indices, all_out, eq, T{77}) == 0 &&
                  calls.wait_some_vector(vars, 0, indices, nullptr, eq, values) == 0,
              name + " waits for an empty set");
  check::that(calls.test_all(vars, kVars, all_out, eq, T{77}) == 1 &&
                  calls.test_all_vector(vars, 0, nullptr, eq, values) == 1 &&
                  calls.test_any(vars, kVars, all_out, eq, T{77}) == SIZE_MAX &&
                  calls.test_any_vector(vars, 0, nullptr, eq, values) == SIZE_MAX &&
                  calls.test_some(vars, kVars, indices, all_out, eq, T{77}) == 0 &&
                  calls.test_some_vector(vars, 0, indices, nullptr, eq, values) == 0,
              name + " tests of an empty set");
}

template <class T>
void test_nothing_there(const std::string& name, const WaitCalls<T>& calls, T* vars, T* values) {
  size_t indices[kVars];
  const int eq = NVSHMEM_CMP_EQ;
  check::that(calls.test(vars, eq, T{1}) == 0 && calls.test_all(vars, kVars, nullptr, eq, T{1}) == 0 &&
                  calls.test_any(vars, kVars, nullptr, eq, T{1}) == SIZE_MAX &&
                  calls.test_some(vars, kVars, indices, nullptr, eq, T{1}) == 0 &&
                  calls.test_all_vector(vars, kVars, nullptr, eq, values) == 0 &&
                  calls.test_any_vector(vars, kVars, nullptr, eq, values) == SIZE_MAX &&
                  calls.test_some_vector(vars, kVars, indices, nullptr, eq, values) == 0,
              name + " tests before anything came");
}

template <class T>
void test_arrivals(const std::string& name, const WaitCalls<T>& calls, T* vars, T* values) {
  size_t indices[kVars];
  const int eq = NVSHMEM_CMP_EQ, gt = NVSHMEM_CMP_GT;
  const int without_2[kVars] = {0, 0, 1, 0, 0, 0};
  calls.wait(vars, eq, T{1});
  const size_t any = calls.wait_any(vars, kVars, without_2, gt, T{0});
  check::that(any < kVars && any != 2 && vars[any] == values[any], name + " wait_until_any");
  const size_t any_vector = calls.wait_any_vector(vars, kVars, without_2, eq, values);
  check::that(any_vector < kVars && any_vector != 2, name + " wait_until_any_vector");
  const auto listed = [&](size_t found) {
    bool good = found >= 1 && found <= kVars - 1;
    for (size_t i = 0; good && i < found; ++i) {
      good = indices[i] < kVars && indices[i] != 2 && vars[indices[i]] == values[indices[i]] &&
             (i == 0 || indices[i] > indices[i - 1]);
    }
    return good;
  };
  check::that(listed(calls.wait_some(vars, kVars, indices, without_2, gt, T{0})), name + " wait_until_some");
  check::that(listed(calls.wait_some_vector(vars, kVars, indices, without_2, eq, values)), name + " wait_some_vector");
  calls.wait_all(vars, kVars, nullptr, NVSHMEM_CMP_NE, T{0});
  calls.wait_all_vector(vars, kVars, nullptr, eq, values);
  bool all = true;
  for (size_t i = 0; i < kVars; ++i) all = all && vars[i] == values[i];
  check::that(all, name + " wait_until_all, wait_until_all_vector");

  check::that(calls.test(vars, eq, T{1}) == 1 && calls.test_all(vars, kVars, nullptr, gt, T{0}) == 1 &&
                  calls.test_any(vars, kVars, nullptr, eq, T{3}) == 2 &&
                  calls.test_any(vars, kVars, without_2, eq, T{3}) == SIZE_MAX &&
                  calls.test_all_vector(vars, kVars, nullptr, eq, values) == 1 &&
                  calls.test_any_vector(vars, kVars, nullptr, eq, values) < kVars,
              name + " tests after all came");
  check::that(calls.test_some(vars, kVars, indices, nullptr, gt, T{4}) == 2 && indices[0] == 4 && indices[1] == 5,
              name + " test_some");
  check::that(calls.test_some_vector(vars, kVars, indices, without_2, eq, values) == kVars - 1 && indices[2] == 3,
              name + " test_some_vector");
}

template <class T>
void test_type(const std::string& name, const WaitCalls<T>& calls) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  auto* vars = static_cast<T*>(nvshmem_calloc(kVars, sizeof(T)));
  if (!check::that(vars != nullptr, name + " calloc")) return;
  T values[kVars];
  for (size_t i = 0; i < kVars; ++i) values[i] = static_cast<T>(i + 1);
  test_comparisons(name, calls, vars);
  test_empty_sets(name, calls, vars, values);
  test_nothing_there(name, calls, vars, values);
  nvshmem_barrier_all();
  for (size_t i = 0; i < kVars; ++i) {
    calls.p(vars + i, values[i], (me + 1) % n);
    nvshmem_fence();
  }
  test_arrivals(name, calls, vars, values);
  nvshmem_barrier_all();
  nvshmem_free(vars);
}

#define WAIT(NAME, TYPE)                                                                                             \
  test_type<TYPE>(#NAME, {nvshmem_##NAME##_wait_until, nvshmem_##NAME##_wait_until_all,                              \
                          nvshmem_##NAME##_wait_until_any, nvshmem_##NAME##_wait_until_some,                         \
                          nvshmem_##NAME##_wait_until_all_vector, nvshmem_##NAME##_wait_until_any_vector,            \
                          nvshmem_##NAME##_wait_until_some_vector, nvshmem_##NAME##_test, nvshmem_##NAME##_test_all, \
                          nvshmem_##NAME##_test_any, nvshmem_##NAME##_test_some, nvshmem_##NAME##_test_all_vector,   \
                          nvshmem_##NAME##_test_any_vector, nvshmem_##NAME##_test_some_vector, nvshmem_##NAME##_p});

}  // namespace

void test_waits() { HEDDLE_WAIT_TYPES(WAIT) }
