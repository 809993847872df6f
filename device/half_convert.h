// IEEE 754 half precision as bits: conversions to and from float, and a sum, on hosts and devices without native
// halves.
#pragma once

#include "device/config.h"

namespace heddle::device {

/// A half-precision number as its 16 bits.
struct Half {
  uint16_t bits = 0;
};

/// Exact: every half is a float. NaNs keep their payload.
HEDDLE_HD inline float half_to_float(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  uint32_t exponent = (half.bits >> 10) & 0x1fu, fraction = half.bits & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | fraction << 13;
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else if (fraction == 0) {
    bits = sign;
  } else {
    // A subnormal half is a normal float: shift its leading one out of the fraction.
    exponent = 113;
    while ((fraction & 0x400u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    bits = sign | exponent << 23 | (fraction & 0x3ffu) << 13;
  }
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Rounds to nearest, ties to even; overflow gives infinity, NaN a quiet NaN.
HEDDLE_HD inline Half float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  auto make = [sign](uint32_t rest) { return Half{static_cast<uint16_t>(sign | rest)}; };
  if (magnitude > 0x7f800000u) return make(0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return make(0x7c00u);  // 65520, halfway between the largest half and 65536
  if (magnitude >= 0x38800000u) {                      // 2^-14, the smallest normal half
    const uint32_t ties_to_even = 0xfffu + ((magnitude >> 13) & 1u);
    return make((magnitude - 0x38000000u + ties_to_even) >> 13);
  }
  if (magnitude <= 0x33000000u) return make(0);  // 2^-25, halfway between 0 and the smallest subnormal
  const uint32_t shift = 126 - (magnitude >> 23);
  const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t rest = fraction & ((1u << shift) - 1), half_way = 1u << (shift - 1);
  uint32_t result = fraction >> shift;
  if (rest > half_way || (rest == half_way && (result & 1u) != 0)) ++result;
  return make(result);
}

/// The correctly rounded sum: a float holds more than twice a half's digits and two, so rounding twice rounds once.
HEDDLE_HD inline Half operator+(Half a, Half b) { return float_to_half(half_to_float(a) + half_to_float(b)); }

}  // namespace heddle::device
